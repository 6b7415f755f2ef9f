// sluice config: every resolved value with its origin.
#include <fmt/format.h>

#include <algorithm>

#include "apps/command.h"
#include "base/error.h"
#include "configs/explain.h"
#include "configs/keys.h"
#include "configs/read_config.h"

namespace sluice::apps {
namespace {

struct Options : ConfigOptions {
  std::optional<uint64_t> world;  // ranks; none: one
  bool keys = false;
};

// The defaults of all keys, for people: what may be written and what it means.
void print_keys(bool json) {
  const configs::RunConfig defaults;
  configs::Json list = configs::Json::array();
  for (const configs::Key& key : configs::keys()) {
    const configs::Json value = key.write(defaults);
    if (json) {
      list.push_back({{"key", key.path},
                      {"help", key.help},
                      {"allowed", key.allowed},
                      {"default", value},
                      {"numeric", key.numeric}});
      continue;
    }
    fmt::print("{}\n    {}\n    {}{}\n", key.path, key.help, key.allowed,
               value.is_null() || value == configs::Json::array() ? "" : "; default " + configs::show(value));
  }
  if (json) {
    fmt::print("{}\n", list.dump(2));
  } else {
    fmt::print(
        "deepspeed\n    a DeepSpeed config to import, under looser rules; keys given beside it win\n"
        "    a path, looked up beside the config, or the content in braces\n"
        "reasons\n    why keys have their values, as sluice tune writes it; without effect\n"
        "    texts by key, in braces\n");
  }
}

void print_json(const configs::RunConfig& config) {
  configs::Json origins = configs::Json::object();
  for (const auto& row : configs::explain(config)) origins[row.key] = row.origin;
  const configs::Json document{
      {"config", configs::resolved_json(config)}, {"origins", origins}, {"notes", config.notes}};
  fmt::print("{}\n", document.dump(2, ' ', false, configs::Json::error_handler_t::replace));
}

void print_table(const configs::RunConfig& config) {
  const auto rows = configs::explain(config);
  size_t keys = 0, values = 0;
  for (const auto& row : rows) {
    keys = std::max(keys, row.key.size());
    values = std::max(values, std::min<size_t>(row.value.size(), 32));
  }
  for (const auto& row : rows)
    fmt::print("{:<{}}  {:<{}}  {}\n", row.key, keys, row.value, values, row.origin);
  for (const std::string& note : config.notes) fmt::print("note: {}\n", note);
}

// A model that is not on disk can only be planned; its config is printed all the same.
configs::RunConfig read(const Options& options) {
  configs::RunConfig planned = configs::read_config(options.config, {.set = options.set, .purpose = configs::Purpose::planning, .world = options.world});
  if (planned.model.sizes.is_null()) return configs::read_config(options.config, {.set = options.set, .world = options.world});
  planned.notes.push_back("model.sizes: there is no model on disk, so this config can only be planned");
  return planned;
}

int run_config(const Options& options) {
  if (options.keys) {
    print_keys(options.json);
    return 0;
  }
  if (options.config.empty()) base::fail(base::ErrorKind::config, "sluice config needs a CONFIG, or --keys");
  const configs::RunConfig config = read(options);
  options.json ? print_json(config) : print_table(config);
  return 0;
}

}  // namespace

void add_config(CLI::App& app, Context& context) {
  auto options = std::make_shared<Options>();
  CLI::App* command = add_command(
      app, context, "config", "Print every value of a config, and where it comes from", options, run_config);
  add_config_options(*command, *options);
  add_world_option(*command, options->world, "As so many ranks see it: the batch keys count all of them");
  command->add_flag("--keys", options->keys,
                    "Print all keys, what they mean and what they may be; no CONFIG is needed");
}

}  // namespace sluice::apps
