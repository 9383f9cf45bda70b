#include "model/chat/arguments.h"

#include "model/chat/cat.h"
#include "model/chat/error.h"
#include "model/chat/operators.h"

namespace quire::jinja {

Parameters::Parameters(std::string_view function, std::initializer_list<std::string_view> names, size_t required,
                       Arguments& arguments)
    : function_(function), names_(names), values_(names.size()) {
  if (arguments.positional.size() > names_.size()) {
    Fail(Cat("TypeError: ", function, "() takes at most ", names_.size(), " argument(s) but ",
             arguments.positional.size(), " were given"));
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = std::move(arguments.positional[i]);
  for (auto& [name, value] : arguments.named) {
    size_t place = 0;
    while (place < names_.size() && names_[place] != name) ++place;
    if (place == names_.size())
      Fail(Cat("TypeError: ", function, "() got an unexpected keyword argument '", name, "'"));
    if (values_[place].has_value())
      Fail(Cat("TypeError: ", function, "() got multiple values for argument '", name, "'"));
    values_[place] = std::move(value);
  }
  for (size_t i = 0; i < required; ++i) {
    if (!values_[i].has_value()) Fail(Cat("TypeError: ", function, "() missing argument '", names_[i], "'"));
  }
}

int64_t Parameters::Index(size_t i, int64_t otherwise) const {
  return Has(i) ? IndexOf(*values_[i], Cat("argument '", names_[i], "' of ", function_, "()")) : otherwise;
}

bool Parameters::Flag(size_t i, bool otherwise) const { return Has(i) ? Truth(*values_[i]) : otherwise; }

const std::string& Parameters::Text(size_t i) const {
  CheckDefined(*values_[i]);
  if (!values_[i]->is(Kind::kString)) {
    Fail(Cat("TypeError: argument '", names_[i], "' of ", function_, "() must be str, not ", TypeName(*values_[i])));
  }
  return values_[i]->text();
}

}  // namespace quire::jinja
