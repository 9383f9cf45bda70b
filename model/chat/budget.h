#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace quire::jinja {

// Templates come with models and in requests: all that a rendering may use.
struct Limits {
  int64_t max_steps = 10'000'000;        // one a node evaluated, an element touched, or 64 bytes of text made
  int32_t max_depth = 1000;              // nested evaluations: expressions, statements and macro calls together
  int64_t max_output_bytes = 64 << 20;   // of the rendering, and of any single text on the way
  int64_t max_template_bytes = 4 << 20;  // of the template's source
};

// What is left of the limits. Throws TemplateError of kind kLimit naming the limit.
class Budget {
 public:
  explicit Budget(const Limits& limits) : limits_(limits) {}

  void Step(int64_t count = 1) {
    steps_ += count;
    if (steps_ > limits_.max_steps) ThrowSteps();
  }
  // Before a text of `bytes` is made.
  void Bytes(int64_t bytes) {
    if (bytes > limits_.max_output_bytes) ThrowBytes();
    Step(1 + bytes / 64);
  }
  void Append(std::string_view piece, std::string* text) {
    Bytes(static_cast<int64_t>(piece.size()));
    if (static_cast<int64_t>(text->size() + piece.size()) > limits_.max_output_bytes) ThrowBytes();
    text->append(piece);
  }
  // Before `count` elements are made, each of which may hold a word or two.
  void Elements(int64_t count) { Step(1 + count); }

  const Limits& limits() const { return limits_; }

  // Holds one level of nesting.
  class Level {
   public:
    explicit Level(Budget& budget) : budget_(budget) {
      if (++budget_.depth_ > budget_.limits_.max_depth) {
        --budget_.depth_;
        budget_.ThrowDepth();
      }
    }
    ~Level() { --budget_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Budget& budget_;
  };

 private:
  [[noreturn]] void ThrowSteps() const;
  [[noreturn]] void ThrowDepth() const;
  [[noreturn]] void ThrowBytes() const;

  const Limits limits_;
  int64_t steps_ = 0;
  int32_t depth_ = 0;
};

}  // namespace quire::jinja
