#include "engine/python_tool.h"

#include <cstdlib>

#include "tests/engine/files_util.h"
#include "tests/paths.h"

namespace sluice::engine {
namespace {

namespace fs = std::filesystem;
using base::ErrorKind;

// Sets a variable for the length of a test.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name_); }

 private:
  const char* name_;
};

TEST(PythonTool, TakesTheChosenInterpreter) {
  const Variable chosen("SLUICE_PYTHON", "/bin/sh");
  EXPECT_EQ(find_python(), "/bin/sh");
  const Variable wrong("SLUICE_PYTHON", "/no/python");
  expect_error(ErrorKind::config, "SLUICE_PYTHON is /no/python", [] { find_python(); });
}

TEST(PythonTool, SearchesAboveTheProgram) {
  // The test lies in the build folder, inside the source tree.
  EXPECT_EQ(fs::canonical(find_tool("prepare.py")),
            fs::canonical(source_dir() / "tools" / "prepare.py"));
  expect_error(ErrorKind::config, "tools/none.py", [] { find_tool("none.py"); });
}

// Says what it was given, then ends with 3, like a tool that found bad data.
TEST(PythonTool, BecomesTheProgram) {
  TempDir dir;
  const fs::path python = dir / "python";
  write_file(python, "#!/bin/sh\necho \"$@\" >&2\nexit 3\n");
  fs::permissions(python, fs::perms::owner_all);
  const Variable chosen("SLUICE_PYTHON", python.c_str());
  EXPECT_EXIT(exec_tool("prepare.py", {"a b", "--out", "c"}), testing::ExitedWithCode(3),
              "tools/prepare.py a b --out c");
}

}  // namespace
}  // namespace sluice::engine
