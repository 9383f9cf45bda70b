#include "model/tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "model/tokenizer/regex_dialect.h"
#include "model/tokenizer/unicode.h"
#include "model/tokenizer/utf8.h"

namespace quire {
namespace {

// A pattern of a real tokenizer needs a few steps a character. Past the limits the engine gives up, and so do we.
constexpr uint32_t kMatchLimit = 10'000'000;
constexpr uint32_t kHeapLimitKib = 64 << 10;
constexpr size_t kJitStackStartBytes = 32 << 10;
constexpr size_t kJitStackBytes = 4 << 20;

// What one thread matches with, whatever the pattern.
struct Scratch {
  Scratch() {
    pcre2_set_match_limit(context, kMatchLimit);
    pcre2_set_heap_limit(context, kHeapLimitKib);
    pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~Scratch() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(kJitStackStartBytes, kJitStackBytes, nullptr);
};

std::string ErrorText(int code) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

}  // namespace

void Regex::FreeCode::operator()(pcre2_real_code_8* code) const { pcre2_code_free(code); }

absl::StatusOr<std::unique_ptr<Regex>> Regex::Compile(std::string_view pattern) {
  if (!utf8::IsValid(pattern)) return absl::InvalidArgumentError("regex is not valid UTF-8");
  QUIRE_RETURN_IF_ERROR(CheckRegexDialect(pattern));
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto regex = std::unique_ptr<Regex>(new Regex);
  // MULTILINE: ^ and $ are line anchors in Ruby syntax.
  regex->code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &offset,
                                   nullptr));
  if (regex->code_ == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("regex does not compile: ", ErrorText(error), " at byte ", offset));
  }
  // Where memory cannot be made executable this fails, and matching interprets.
  pcre2_jit_compile(regex->code_.get(), PCRE2_JIT_COMPLETE);
  return regex;
}

absl::Status Regex::FindAll(std::string_view text, std::vector<TextRange>* matches) const {
  thread_local Scratch scratch;
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const PCRE2_SIZE* span = pcre2_get_ovector_pointer(scratch.data);
  size_t from = 0;
  size_t last_end = static_cast<size_t>(-1);
  while (from <= text.size()) {
    const int rc =
        pcre2_match(code_.get(), subject, text.size(), from, PCRE2_NO_UTF_CHECK, scratch.data, scratch.context);
    if (rc == PCRE2_ERROR_NOMATCH) break;
    if (rc < 0) return absl::ResourceExhaustedError(absl::StrCat("pre-tokenizer regex gave up: ", ErrorText(rc)));
    const TextRange match{span[0], span[1]};
    if (match.begin == match.end && match.end == last_end) {
      if (from == text.size()) break;
      utf8::Decode(text, &from);
      continue;
    }
    matches->push_back(match);
    from = last_end = match.end;
  }
  return absl::OkStatus();
}

}  // namespace quire
