// An existing DeepSpeed configuration as a layer of our own keys.
#pragma once
#include <string>
#include <vector>

#include "configs/layers.h"

namespace sluice::configs {

// Looser than our own rules: whole numbers may be floats (2e8), numbers and booleans may be strings, "auto"
// counts as not given, and old names are understood. A key of DeepSpeed's without effect here adds a line to
// `notes` saying why; one that would change the result and is not built, and one that neither knows, is
// Error(config).
void import_deepspeed(const Json& document, const OriginOf& origin_of, Layer* layer,
                      std::vector<std::string>* notes);

}  // namespace sluice::configs
