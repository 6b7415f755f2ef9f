#include "configs/json_text.h"

#include <algorithm>
#include <set>
#include <vector>

#include "base/error.h"

namespace sluice::configs {
namespace {

using base::ErrorKind;
constexpr size_t kMaxDepth = 32;

// Feeds the text to the parser and counts what it has taken, so that a callback knows where it is.
struct CountingIterator {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;
  const char* at = nullptr;
  size_t* taken = nullptr;
  reference operator*() const { return *at; }
  CountingIterator& operator++() {
    ++at;
    ++*taken;
    return *this;
  }
  bool operator==(const CountingIterator& other) const { return at == other.at; }
  bool operator!=(const CountingIterator& other) const { return at != other.at; }
};

class Builder : public nlohmann::json_sax<Json> {
 public:
  Builder(std::string_view text, const std::string& name, JsonText* out)
      : text_(text), name_(name), out_(out) {}
  size_t taken = 0;

  bool null() override { return put(nullptr); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(number_integer_t value) override { return put(value); }
  bool number_unsigned(number_unsigned_t value) override { return put(value); }
  bool number_float(number_float_t value, const string_t&) override { return put(value); }
  bool string(string_t& value) override { return put(value); }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return open(Json::object()); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& key) override {
    Level& level = levels_.back();
    if (!level.keys.insert(key).second)
      base::fail(ErrorKind::config, "{}: the key \"{}\" is given twice{}", position(taken), key,
                 level.path.empty() ? "" : " in " + level.path);
    level.key = key;
    if (!level.in_array) out_->lines.emplace(child_path(level), line_and_column(taken).first);
    return true;
  }

  bool parse_error(size_t position_, const std::string&, const nlohmann::detail::exception& error) override {
    std::string what =
        error.what();  // "[json.exception...] parse error at line 3, column 5: syntax error ..."
    if (const size_t cut = what.find(": "); cut != std::string::npos) what.erase(0, cut + 2);
    base::fail(ErrorKind::config, "{}: not valid JSON: {}", position(position_), what);
  }

 private:
  struct Level {
    Json* value;
    std::string path;  // dotted
    bool in_array;     // the level is an array or lies in one
    std::string key;   // the key whose value comes next
    std::set<std::string> keys;
  };

  static std::string child_path(const Level& level) {
    return level.path.empty() ? level.key : level.path + "." + level.key;
  }
  std::pair<int, size_t> line_and_column(size_t offset) const {
    const std::string_view before = text_.substr(0, std::min(offset, text_.size()));
    const size_t newline = before.rfind('\n');
    return {1 + static_cast<int>(std::count(before.begin(), before.end(), '\n')),
            newline == std::string_view::npos ? before.size() : before.size() - newline - 1};
  }
  std::string position(size_t offset) const {
    const auto [line, column] = line_and_column(offset);
    return fmt::format("{}:{}:{}", name_, line, column);
  }
  Json* place(Json value) {
    if (levels_.empty()) {
      out_->value = std::move(value);
      return &out_->value;
    }
    Level& level = levels_.back();
    if (level.value->is_array()) {
      level.value->push_back(std::move(value));
      return &level.value->back();
    }
    return &((*level.value)[level.key] = std::move(value));
  }
  bool put(Json value) {
    place(std::move(value));
    return true;
  }
  bool open(Json value) {
    if (levels_.size() >= kMaxDepth)
      base::fail(ErrorKind::config, "{}: nested more than {} levels deep", position(taken), kMaxDepth);
    const bool array = value.is_array();
    const std::string path = levels_.empty() ? "" : child_path(levels_.back());
    const bool in_array = array || (!levels_.empty() && levels_.back().in_array);
    Json* placed = place(std::move(value));
    levels_.push_back({placed, path, in_array, "", {}});
    return true;
  }
  bool close() {
    levels_.pop_back();
    return true;
  }

  const std::string_view text_;
  const std::string& name_;
  JsonText* const out_;
  std::vector<Level> levels_;  // open objects and arrays; a parent does not grow while a child is open
};

// Index just past the comment that begins at `at`, or `at` when none does.
size_t skip_comment(std::string_view text, size_t at) {
  if (text[at] == '#' || text.substr(at, 2) == "//") return std::min(text.find('\n', at), text.size());
  if (text.substr(at, 2) != "/*") return at;
  const size_t end = text.find("*/", at + 2);
  return end == std::string_view::npos ? text.size() : end + 2;
}

}  // namespace

JsonText parse_json(std::string_view text, const std::string& name) {
  JsonText result;
  Builder builder(text, name, &result);
  const CountingIterator begin{text.data(), &builder.taken};
  const CountingIterator end{text.data() + text.size(), &builder.taken};
  if (!Json::sax_parse(begin, end, &builder)) base::fail(ErrorKind::config, "{}: not valid JSON", name);
  return result;
}

std::string relax_json(std::string_view text) {
  std::string result(text);
  size_t comma = std::string::npos;  // a comma after which only blanks and comments have come
  for (size_t i = 0; i < result.size();) {
    if (const size_t end = skip_comment(text, i); end != i) {
      for (; i < end; ++i)
        if (result[i] != '\n') result[i] = ' ';
      continue;
    }
    const char c = result[i];
    if (c == '"') {
      for (++i; i < result.size() && result[i] != '"'; ++i)
        if (result[i] == '\\') ++i;
      comma = std::string::npos;
    } else if (c == ',') {
      comma = i;
    } else if ((c == '}' || c == ']') && comma != std::string::npos) {
      result[comma] = ' ';
      comma = std::string::npos;
    } else if (c != ' ' && c != '\t' && c != '\r' && c != '\n') {
      comma = std::string::npos;
    }
    ++i;
  }
  return result;
}

std::string show(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string plain(const Json& value) {
  return value.is_string() ? value.get<std::string>() : show(value);
}

}  // namespace sluice::configs
