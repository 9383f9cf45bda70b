#include "model/tokenizer/bpe.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <queue>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "model/printable.h"
#include "model/tokenizer/utf8.h"

namespace quire {
namespace {

constexpr char32_t kTableEnd = 0x800;  // the two-byte characters, byte-level ones among them
constexpr size_t kShortPiece = 32;
constexpr int32_t kNoRank = std::numeric_limits<int32_t>::max();

uint64_t PairKey(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

}  // namespace

void Bpe::Reserve(size_t num_tokens, size_t num_merges) {
  ids_.reserve(num_tokens);
  merges_.reserve(num_merges);
}

bool Bpe::AddToken(std::string_view text, int32_t id) { return ids_.emplace(text, id).second; }

int32_t Bpe::IdOf(std::string_view text) const {
  const auto at = ids_.find(text);
  return at == ids_.end() ? -1 : at->second;
}

absl::Status Bpe::AddMerge(std::string_view left, std::string_view right) {
  std::string joined(left);
  joined += right;
  const int32_t left_id = IdOf(left);
  const int32_t right_id = IdOf(right);
  const int32_t id = IdOf(joined);
  for (const auto& [token, found] : {std::pair(left, left_id), {right, right_id}, {std::string_view(joined), id}}) {
    if (found >= 0) continue;
    return absl::InvalidArgumentError(absl::StrFormat("merge %d ('%s' '%s') needs the token '%s', which there is not",
                                                      num_merges_, Printable(left), Printable(right),
                                                      Printable(token)));
  }
  merges_[PairKey(left_id, right_id)] = {num_merges_++, id};
  return absl::OkStatus();
}

absl::Status Bpe::AddMerge(std::string_view line) {
  const size_t space = line.find(' ');
  if (space == line.npos || line.find(' ', space + 1) != line.npos) {
    return absl::InvalidArgumentError(
        absl::StrFormat("merge %d, '%s', is not two tokens with one space between", num_merges_, Printable(line)));
  }
  return AddMerge(line.substr(0, space), line.substr(space + 1));
}

absl::Status Bpe::Finish() {
  if (!options_.unk_token.empty()) {
    unk_id_ = IdOf(options_.unk_token);
    if (unk_id_ < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("unk_token '", Printable(options_.unk_token), "' is not in the vocabulary"));
    }
  }
  for (int byte = 0; byte < 256; ++byte) byte_ids_.push_back(IdOf(absl::StrFormat("<0x%02X>", byte)));
  for (char32_t c = 0; c < kTableEnd; ++c) {
    std::string text;
    utf8::Append(c, &text);
    character_ids_.push_back(IdOf(text));
  }
  return absl::OkStatus();
}

const Bpe::Merge* Bpe::FindMerge(int32_t left, int32_t right) const {
  const auto at = merges_.find(PairKey(left, right));
  return at == merges_.end() ? nullptr : &at->second;
}

int32_t Bpe::IdOfCharacter(std::string_view piece, size_t* offset) const {
  const size_t begin = *offset;
  const char32_t c = utf8::Decode(piece, offset);
  return c < kTableEnd ? character_ids_[c] : IdOf(piece.substr(begin, *offset - begin));
}

bool Bpe::AppendBytes(std::string_view character, std::vector<int32_t>* ids) const {
  const size_t begin = ids->size();
  for (const char byte : character) {
    const int32_t id = byte_ids_[static_cast<uint8_t>(byte)];
    if (id < 0) {
      ids->resize(begin);
      return false;
    }
    ids->push_back(id);
  }
  return true;
}

void Bpe::SplitIntoCharacters(std::string_view piece, std::vector<int32_t>* ids) const {
  // An unknown token is written when the next known one comes, not at once, and bytes do not count as known: so the
  // reference orders them.
  bool pending_unk = false;
  for (size_t i = 0; i < piece.size();) {
    const size_t begin = i;
    const int32_t id = IdOfCharacter(piece, &i);
    if (id >= 0) {
      if (pending_unk) ids->push_back(unk_id_);
      pending_unk = false;
      ids->push_back(id);
    } else if (options_.byte_fallback && AppendBytes(piece.substr(begin, i - begin), ids)) {
      continue;
    } else if (unk_id_ >= 0) {
      if (pending_unk && !options_.fuse_unk) ids->push_back(unk_id_);
      pending_unk = true;
    }
  }
  if (pending_unk) ids->push_back(unk_id_);
}

// Keeps the rank of each pair in place: quadratic, and the fastest for the few characters of most pieces.
void Bpe::MergeShort(std::vector<int32_t>* ids, size_t begin) const {
  int32_t* const id = ids->data() + begin;
  size_t n = ids->size() - begin;
  int32_t rank[kShortPiece];
  int32_t merged[kShortPiece];
  const auto look_up = [&](size_t i) {
    const Merge* merge = FindMerge(id[i], id[i + 1]);
    rank[i] = merge == nullptr ? kNoRank : merge->rank;
    merged[i] = merge == nullptr ? -1 : merge->id;
  };
  for (size_t i = 0; i + 1 < n; ++i) look_up(i);
  while (n > 1) {
    const size_t best = std::min_element(rank, rank + n - 1) - rank;
    if (rank[best] == kNoRank) break;
    id[best] = merged[best];
    std::copy(id + best + 2, id + n, id + best + 1);
    if (best + 2 < n) {
      std::copy(rank + best + 2, rank + n - 1, rank + best + 1);
      std::copy(merged + best + 2, merged + n - 1, merged + best + 1);
    }
    --n;
    if (best > 0) look_up(best - 1);
    if (best + 1 < n) look_up(best);
  }
  ids->resize(begin + n);
}

// A linked list of tokens and a heap of pairs. A pair in the heap may be gone, or another pair by now: then its rank is
// not that of the pair that stands there.
void Bpe::MergeLong(std::vector<int32_t>* ids, size_t begin) const {
  struct Symbol {
    int32_t id;
    int32_t previous;
    int32_t next;  // -1: none
  };
  const auto n = static_cast<int32_t>(ids->size() - begin);
  std::vector<Symbol> symbols(n);
  std::vector<uint64_t> storage;
  storage.reserve(n);
  std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<>> heap(std::greater<>(), std::move(storage));
  const auto push = [&](int32_t left) {
    if (left < 0 || symbols[left].next < 0) return;
    const Merge* merge = FindMerge(symbols[left].id, symbols[symbols[left].next].id);
    if (merge != nullptr) heap.push(PairKey(merge->rank, left));
  };
  for (int32_t i = 0; i < n; ++i) symbols[i] = {(*ids)[begin + i], i - 1, i + 1 < n ? i + 1 : -1};
  for (int32_t i = 0; i < n; ++i) push(i);
  while (!heap.empty()) {
    const auto rank = static_cast<int32_t>(heap.top() >> 32);
    const auto left = static_cast<int32_t>(heap.top() & 0xFFFFFFFF);
    heap.pop();
    const int32_t right = symbols[left].next;
    if (symbols[left].id < 0 || right < 0) continue;
    const Merge* merge = FindMerge(symbols[left].id, symbols[right].id);
    if (merge == nullptr || merge->rank != rank) continue;
    symbols[left].id = merge->id;
    symbols[left].next = symbols[right].next;
    symbols[right].id = -1;
    if (symbols[left].next >= 0) symbols[symbols[left].next].previous = left;
    push(symbols[left].previous);
    push(left);
  }
  ids->resize(begin);
  for (int32_t i = 0; i >= 0; i = symbols[i].next) ids->push_back(symbols[i].id);
}

void Bpe::Tokenize(std::string_view piece, std::vector<int32_t>* ids) const {
  if (options_.ignore_merges) {
    if (const int32_t id = IdOf(piece); id >= 0) {
      ids->push_back(id);
      return;
    }
  }
  const size_t begin = ids->size();
  SplitIntoCharacters(piece, ids);
  const size_t n = ids->size() - begin;
  if (n > kShortPiece) {
    MergeLong(ids, begin);
  } else if (n > 1) {
    MergeShort(ids, begin);
  }
}

}  // namespace quire
