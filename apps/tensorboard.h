// Event files as TensorBoard reads them: TFRecord frames (length, masked CRC-32C, data, masked CRC-32C) of Event protobuf messages.
// Formats: tensorflow/core/lib/io/record_writer.h, tensorflow/core/util/event.proto.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string_view>

#include "apps/run_metrics.h"

namespace sluice::apps {

// Writes FOLDER/events.out.tfevents.<name>, all figures as scalars. Error(disk).
void write_tensorboard(const std::filesystem::path& folder, const RunMetrics& metrics);

uint32_t crc32c(std::string_view data);

}  // namespace sluice::apps
