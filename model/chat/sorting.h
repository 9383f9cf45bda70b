#pragma once

#include <optional>
#include <vector>

#include "model/chat/filters.h"
#include "model/chat/value.h"

namespace quire::jinja {

// What elements are sorted, grouped and told apart by: an attribute (none: the element itself), in lower case unless
// case counts. `several`: the attribute may be a list of paths with commas between, and the key is a list.
class SortKey {
 public:
  SortKey(const Value& attribute, bool case_sensitive, bool several, const Value* otherwise = nullptr);

  Value Of(Interpreter& in, const Value& item) const;

 private:
  std::vector<AttributePath> paths_;
  bool case_sensitive_;
  bool several_;
  std::optional<Value> otherwise_;
};

// Stable, also when reversed, as Python's sorted.
std::vector<Value> Sorted(Interpreter& in, std::vector<Value> items, const SortKey& key, bool reverse);

}  // namespace quire::jinja
