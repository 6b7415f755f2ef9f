// metrics.jsonl of a run, read back.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "offload/executor.h"

namespace sluice::apps {

struct StepFigures {
  uint64_t step = 0;
  std::map<std::string, double> values;  // "loss", "bytes.disk_read", "stall.compute", ...; null and absent ones are left out
  // Bytes that all ranks of the machine have written to its drives; of runs before that was told, those of the first rank.
  double written() const;
};
struct EvalFigures {
  uint64_t step;
  double loss;
  double seconds = 0;  // that training stood still for it; 0: unknown
  double time = 0;     // since 1970; 0: unknown
};
struct StoredEvent {
  uint64_t step;
  std::string kind, text;
};

struct CommitFigures {  // of the state in memory; a step that is committed on its own has it in its line
  uint64_t step;
  double seconds;  // that training stood still
  double bytes = 0;  // written
};

struct RunMetrics {
  std::vector<StepFigures> steps;
  std::vector<CommitFigures> commits;
  std::vector<EvalFigures> evaluations;
  std::vector<StoredEvent> events;
};

// Seconds at work and bytes of each lane in that step; 0 where the line does not say.
offload::ExecutorStats lanes_of(const StepFigures& step);

// The last line may be torn by a crash. Error(disk) when the file cannot be read, Error(data) for another bad line.
RunMetrics read_metrics(const std::filesystem::path& file);

}  // namespace sluice::apps
