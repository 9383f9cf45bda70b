#pragma once

#include <array>
#include <cstdint>
#include <memory>

namespace quire {

// A keyed bijection of token ids: what a schedule trace shows instead of them (scheduler/trace/README.md). The prefix
// cache can keep its entries in the order of the images, so that whoever sees only images comes to the same order.
//
// A Feistel network of 8 rounds over [0, 2^bits); other numbers map to themselves. It hides text from whoever opens a
// file; it is no cipher: equal ids keep equal images, and the rounds are not cryptographic.
// A value; safe to use from any thread.
class TokenPermutation {
 public:
  using Key = std::array<uint64_t, 2>;
  static constexpr int kMinBits = 2, kMaxBits = 31;

  TokenPermutation() = default;  // the identity
  // `bits` in [kMinBits, kMaxBits]: the vocabulary has at most 2^bits ids.
  TokenPermutation(const Key& key, int bits);

  int32_t operator()(int32_t id) const {
    if (bits_ == 0) return id;
    return static_cast<uint32_t>(id) < kKnown ? (*known_)[id] : Permute(id);
  }
  bool Less(int32_t a, int32_t b) const { return (*this)(a) < (*this)(b); }
  bool is_identity() const { return bits_ == 0; }
  const Key& key() const { return key_; }

 private:
  static constexpr int kRounds = 8;
  static constexpr uint32_t kKnown = 1024;  // the lowest ids are the most frequent ones of a vocabulary

  int32_t Permute(int32_t id) const;

  int bits_ = 0;
  Key key_ = {};
  std::array<uint64_t, kRounds> round_keys_ = {};
  std::shared_ptr<const std::array<int32_t, kKnown>> known_;  // images of the first ids; shared by copies
};

}  // namespace quire
