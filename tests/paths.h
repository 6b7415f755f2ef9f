// Where tests find files. Compiled once, so that no other object depends on the folder of the checkout (ccache).
#pragma once
#include <filesystem>

namespace sluice {

std::filesystem::path source_dir();
std::filesystem::path binary_dir();
// The tiny models of tools/make_test_models.py: SLUICE_TEST_MODELS, or those that scripts/setup made. Throws when there are none.
std::filesystem::path test_models();

}  // namespace sluice
