#pragma once

#include <vector>

#include "model/chat/ast.h"

namespace quire::jinja {

// Which of a few names a block reads before anything in it assigns them, nested macros included: jinja2 decides by it
// whether a macro takes a caller, further keyword arguments, or further positional ones.
class FreeNames {
 public:
  FreeNames(const Block& block, std::vector<NameId> wanted);

  bool Reads(NameId name) const;

 private:
  void Visit(const Block& block);
  void Visit(const ExpressionPtr& expression);
  void Visit(const Expression& expression);
  void Visit(const Callable& callable);
  void Assign(const Target& target);
  void Assign(NameId name);

  std::vector<NameId> wanted_;  // shrinks as names are assigned
  std::vector<NameId> read_;
};

}  // namespace quire::jinja
