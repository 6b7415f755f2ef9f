// sluice prepare: text to a token file, by tools/prepare.py.
#include "apps/command.h"
#include "engine/python_tool.h"

namespace sluice::apps {
namespace {

struct Options : CommonOptions {
  std::vector<std::string> inputs;
  std::string tokenizer, out, split = "file";
  bool no_eos = false;
};

int run_prepare(const Options& options) {
  std::vector<std::string> arguments = {"--tokenizer", options.tokenizer, "--out",
                                        options.out,   "--split",         options.split};
  if (options.no_eos) arguments.emplace_back("--no-eos");
  if (options.json) arguments.emplace_back("--json");
  arguments.emplace_back("--");
  arguments.insert(arguments.end(), options.inputs.begin(), options.inputs.end());
  engine::exec_tool("prepare.py", arguments);
}

}  // namespace

void add_prepare(CLI::App& app, Context& context) {
  auto options = std::make_shared<Options>();
  CLI::App* command = add_command(app, context, "prepare", "Tokenise text, JSONL or chats into a token file",
                                  options, run_prepare);
  command
      ->add_option(
          "INPUT", options->inputs,
          "Files: *.jsonl and *.json hold one {\"text\"} or {\"messages\"} a line, all others are UTF-8 text")
      ->required()
      ->type_name("");
  command->add_option("--tokenizer", options->tokenizer, "Folder with tokenizer.json: the model's")
      ->required()
      ->type_name("DIR");
  command->add_option("--out", options->out, "Token file to write")->required()->type_name("FILE");
  command
      ->add_option("--split", options->split,
                   "What a document is in plain text; default: file")
      ->check(CLI::IsMember({"file", "blank-line", "line"}));
  command->add_flag("--no-eos", options->no_eos, "Append no end token to text documents");
}

}  // namespace sluice::apps
