#include "configs/json_text.h"

#include <gtest/gtest.h>

namespace sluice::configs {
namespace {

TEST(JsonText, RemembersTheLineOfEachKey) {
  const JsonText text =
      parse_json("{\n \"a\": 1,\n \"b\": {\"c\": 2,\n  \"d\": [3,\n {\"e\": 4}]},\n \"f\": null}", "t");
  EXPECT_EQ(text.lines.at("a"), 2);
  EXPECT_EQ(text.lines.at("b"), 3);
  EXPECT_EQ(text.lines.at("b.c"), 3);
  EXPECT_EQ(text.lines.at("b.d"), 4);
  EXPECT_EQ(text.lines.at("f"), 6);
  EXPECT_EQ(text.lines.size(), 5u);  // keys inside lists have no path
  EXPECT_EQ(show(text.value), R"({"a":1,"b":{"c":2,"d":[3,{"e":4}]},"f":null})");
}

TEST(JsonText, RelaxingBlanksCommentsAndLastCommas) {
  const std::string relaxed = relax_json(
      "{ # one\n \"a\": \"// # /* no */\", // two\n \"b\": [1, 2, /* three\n */ ],\n \"c\\\"#\": 3,\n}");
  const JsonText text = parse_json(relaxed, "t");
  EXPECT_EQ(show(text.value), R"({"a":"// # /* no */","b":[1,2],"c\"#":3})");
  EXPECT_EQ(text.lines.at("c\"#"), 5);
}

TEST(JsonText, RelaxingKeepsBrokenTextBroken) {
  for (const char* broken : {"{\"a\": \"open", "/* open", "{\"a\\", "{,}x", "#"}) {
    EXPECT_EQ(relax_json(broken).size(), std::string(broken).size());
    EXPECT_ANY_THROW(parse_json(relax_json(broken), "t")) << broken;
  }
}

TEST(JsonText, ShowNeverThrows) {
  EXPECT_FALSE(show(Json("\xff\xfe")).empty());
}

}  // namespace
}  // namespace sluice::configs
