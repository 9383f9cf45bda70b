#pragma once

#include <memory>
#include <string>
#include <vector>

namespace quire {

// Rewrites a stretch of text before anything else is done with it. Immutable, safe to use from many threads at once.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  // *text is valid UTF-8 and stays it.
  virtual void Normalize(std::string* text) const = 0;
};

// Canonical composition as of Unicode 9.
class NfcNormalizer : public Normalizer {
 public:
  void Normalize(std::string* text) const override;
};

// One after the other; none at all is legal.
class SequenceNormalizer : public Normalizer {
 public:
  explicit SequenceNormalizer(std::vector<std::unique_ptr<Normalizer>> parts) : parts_(std::move(parts)) {}
  void Normalize(std::string* text) const override;

 private:
  std::vector<std::unique_ptr<Normalizer>> parts_;
};

}  // namespace quire
