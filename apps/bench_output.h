// What `sluice bench` found, as text and as JSON.
#pragma once
#include <string>

#include <nlohmann/json.hpp>

#include "apps/bench.h"

namespace sluice::apps {

std::string bench_text(const Bench& bench);
// Fixed names: disk.{read,write}.{gb_per_s,cpu_ms_per_gb}, adam.{params_per_s,fraction_of_stream}. Parts that were not run are absent.
nlohmann::ordered_json bench_json(const Bench& bench);

}  // namespace sluice::apps
