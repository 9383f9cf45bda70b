#include "model/tokenizer/bpe.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/base/check.h"
#include "model/printable.h"
#include "model/tokenizer/byte_level.h"
#include "model/tokenizer/rank_queue.h"
#include "model/tokenizer/utf8.h"
#include "model/tokenizer/vocabulary.h"

namespace quire {
namespace {

constexpr char32_t kTableEnd = 0x800;  // the two-byte characters, byte-level ones among them
constexpr size_t kShortPiece = 32;
constexpr int32_t kNoRank = std::numeric_limits<int32_t>::max();
constexpr auto kFirstLeftOver = static_cast<int32_t>(Vocabulary::kMaxTokens);  // above all ids

uint64_t PairKey(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

}  // namespace

void Bpe::Reserve(size_t num_tokens, size_t num_merges) {
  tokens_.reserve(num_tokens);
  merges_.reserve(num_merges);
}

bool Bpe::AddToken(std::string_view text, int32_t id) { return tokens_.try_emplace(text, Token{id}).second; }

int32_t Bpe::IdOf(std::string_view text) const {
  const auto at = tokens_.find(text);
  return at == tokens_.end() ? -1 : at->second.id;
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
  AddRankedMerge(left_id, right_id, id, num_merges_++);
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

void Bpe::AddRankedMerge(int32_t left, int32_t right, int32_t made, int32_t rank) {
  merges_[PairKey(left, right)] = {rank, made};
  max_rank_ = std::max(max_rank_, rank);
}

int32_t Bpe::AddCharacter(std::string_view character) {
  const int32_t id = kFirstLeftOver + static_cast<int32_t>(left_over_.size());
  left_over_.emplace_back(character);
  AddToken(character, id);
  return id;
}

absl::Status Bpe::Finish() {
  if (!options_.unk_token.empty()) {
    unk_id_ = IdOf(options_.unk_token);
    if (unk_id_ < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("unk_token '", Printable(options_.unk_token), "' is not in the vocabulary"));
    }
  }
  if (options_.bytes) {
    QUIRE_CHECK(unk_id_ < 0 && !options_.byte_fallback);
    SpellTokensInBytes();
  } else {
    TabulateCharacters();
    FindNeighbours();
  }
  for (const auto& [text, token] : tokens_) longest_token_ = std::max(longest_token_, text.size());
  MarkWholeTokens();
  return absl::OkStatus();
}

void Bpe::TabulateCharacters() {
  for (int byte = 0; byte < 256; ++byte) byte_ids_.push_back(IdOf(absl::StrFormat("<0x%02X>", byte)));
  for (char32_t c = 0; c < kTableEnd; ++c) {
    std::string text;
    utf8::Append(c, &text);
    character_ids_.push_back(IdOf(text));
  }
}

void Bpe::SpellTokensInBytes() {
  TextMap<Token> by_bytes;
  by_bytes.reserve(tokens_.size());
  std::string bytes;
  for (const auto& [text, token] : tokens_) {
    bytes.clear();
    if (byte_level::AppendBytes(text, &bytes)) by_bytes.emplace(bytes, token);  // others are in no text
  }
  tokens_ = std::move(by_bytes);
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    byte_ids_.push_back(IdOf(std::string_view(&c, 1)));
  }
}

void Bpe::FindNeighbours() {
  neighbours_.Reserve(tokens_.size());
  std::vector<bool> made;
  for (const auto& [pair, merge] : merges_) {
    if (made.size() <= static_cast<size_t>(merge.id)) made.resize(merge.id + 1);
    made[merge.id] = true;
  }
  for (const auto& [text, token] : tokens_) {
    if (text.empty()) continue;
    size_t end = 0;
    const char32_t c = utf8::Decode(text, &end);
    if (end == text.size()) neighbours_.AddCharacter(c);
    if (static_cast<size_t>(token.id) < made.size() && made[token.id]) neighbours_.AddToken(text);
  }
}

void Bpe::MarkWholeTokens() {
  std::vector<std::pair<std::string_view, Token*>> all;
  all.reserve(tokens_.size());
  for (auto& [text, token] : tokens_) all.emplace_back(text, &token);
  std::vector<bool> whole(all.size());
  std::vector<int32_t> ids;
  for (size_t i = 0; i < all.size(); ++i) {
    ids.clear();
    TokenizeStretch(all[i].first, &ids, /*sizes=*/nullptr);
    whole[i] = ids.size() == 1 && ids[0] == all[i].second->id;
  }
  for (size_t i = 0; i < all.size(); ++i) all[i].second->whole = whole[i];
}

const Bpe::Merge* Bpe::FindMerge(int32_t left, int32_t right) const {
  const auto at = merges_.find(PairKey(left, right));
  return at == merges_.end() ? nullptr : &at->second;
}

const Bpe::Token* Bpe::FindWhole(std::string_view text) const {
  if (text.size() > longest_token_) return nullptr;
  const auto at = tokens_.find(text);
  return at != tokens_.end() && (at->second.whole || options_.ignore_merges) ? &at->second : nullptr;
}

size_t Bpe::SpelledSize(std::string_view piece) const {
  if (!options_.bytes) return piece.size();
  size_t size = 0;
  for (const char byte : piece) size += byte_level::SpelledSize(byte);
  return size;
}

int32_t Bpe::IdOfCharacter(std::string_view piece, size_t* offset) const {
  const size_t begin = *offset;
  const char32_t c = utf8::Decode(piece, offset);
  return c < kTableEnd ? character_ids_[c] : IdOf(piece.substr(begin, *offset - begin));
}

bool Bpe::PushBytes(std::string_view character, const Symbols& symbols) const {
  for (const char byte : character) {
    if (byte_ids_[static_cast<uint8_t>(byte)] < 0) return false;
  }
  for (const char byte : character) symbols.Push(byte_ids_[static_cast<uint8_t>(byte)], 1);
  return true;
}

void Bpe::SplitIntoBytes(std::string_view piece, const Symbols& symbols) const {
  for (const char byte : piece) {
    const int32_t id = byte_ids_[static_cast<uint8_t>(byte)];
    if (id >= 0) symbols.Push(id, byte_level::SpelledSize(byte));
  }
}

void Bpe::SplitIntoCharacters(std::string_view piece, const Symbols& symbols) const {
  // An unknown token is written when the next known one comes, not at once, and bytes do not count as known: so the
  // reference orders them.
  size_t pending_unk = 0;  // bytes that it stands for
  for (size_t i = 0; i < piece.size();) {
    const size_t begin = i;
    const int32_t id = IdOfCharacter(piece, &i);
    if (id >= 0) {
      if (pending_unk > 0) symbols.Push(unk_id_, pending_unk);
      pending_unk = 0;
      symbols.Push(id, i - begin);
    } else if (options_.byte_fallback && PushBytes(piece.substr(begin, i - begin), symbols)) {
      continue;
    } else if (unk_id_ >= 0) {
      if (pending_unk > 0 && !options_.fuse_unk) {
        symbols.Push(unk_id_, pending_unk);
        pending_unk = 0;
      }
      pending_unk += i - begin;
    }
  }
  if (pending_unk > 0) symbols.Push(unk_id_, pending_unk);
}

// Keeps the rank of each pair in place: quadratic, and the fastest for the few characters of most pieces.
void Bpe::MergeShort(const Symbols& symbols) const {
  int32_t* const id = symbols.ids->data() + symbols.begin;
  uint32_t* const size = symbols.sizes == nullptr ? nullptr : symbols.sizes->data() + symbols.sizes_begin;
  size_t n = symbols.size();
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
    if (size != nullptr) {
      size[best] += size[best + 1];
      std::copy(size + best + 2, size + n, size + best + 1);
    }
    if (best + 2 < n) {
      std::copy(rank + best + 2, rank + n - 1, rank + best + 1);
      std::copy(merged + best + 2, merged + n - 1, merged + best + 1);
    }
    --n;
    if (best > 0) look_up(best - 1);
    if (best + 1 < n) look_up(best);
  }
  symbols.Resize(n);
}

// A linked list of tokens and a queue of pairs. A pair in the queue may be gone, or another pair by now: then its rank
// is not that of the pair that stands there.
void Bpe::MergeLong(const Symbols& symbols) const {
  struct Node {
    int32_t id;
    int32_t previous;
    int32_t next;  // n: none
    int32_t rank;  // of the pair that begins here; kNoRank: none
  };
  const auto n = static_cast<int32_t>(symbols.size());
  std::vector<Node> nodes(n);
  for (int32_t i = 0; i < n; ++i) nodes[i] = {symbols.id(i), i - 1, i + 1, kNoRank};
  RankQueue queue(nodes.size(), max_rank_);
  const auto push = [&](int32_t left) {
    Node& node = nodes[left];
    const Merge* merge = node.next == n ? nullptr : FindMerge(node.id, nodes[node.next].id);
    node.rank = merge == nullptr ? kNoRank : merge->rank;
    if (merge != nullptr) queue.Push(merge->rank, left);
  };
  for (int32_t i = 0; i < n; ++i) push(i);
  int32_t rank = 0, left = 0;
  while (queue.Pop(&rank, &left)) {
    Node& node = nodes[left];
    if (node.rank != rank) continue;
    Node& gone = nodes[node.next];
    node.id = FindMerge(node.id, gone.id)->id;
    node.next = gone.next;
    gone.rank = kNoRank;
    if (gone.next < n) nodes[gone.next].previous = left;
    if (node.previous >= 0) push(node.previous);
    push(left);
  }
  size_t count = 0;
  for (int32_t i = 0; i < n; i = nodes[i].next) symbols.Join(count++, nodes[i].id, i, nodes[i].next);
  symbols.Resize(count);
}

void Bpe::ReplaceLeftOver(const Symbols& symbols) const {
  std::vector<int32_t> ids;
  std::vector<uint32_t> sizes;
  const Symbols replaced(&ids, &sizes);
  for (size_t i = 0; i < symbols.size(); ++i) {
    const int32_t id = symbols.id(i);
    if (id < kFirstLeftOver) {
      replaced.Push(id, symbols.size_of(i));
    } else if (!PushBytes(left_over_[id - kFirstLeftOver], replaced) && unk_id_ >= 0) {
      replaced.Push(unk_id_, symbols.size_of(i));
    }
  }
  symbols.Resize(0);
  for (size_t i = 0; i < ids.size(); ++i) symbols.Push(ids[i], sizes[i]);
}

void Bpe::TokenizeStretch(std::string_view stretch, std::vector<int32_t>* ids, std::vector<uint32_t>* sizes) const {
  const Symbols symbols(ids, sizes);
  if (options_.bytes) {
    SplitIntoBytes(stretch, symbols);
  } else {
    SplitIntoCharacters(stretch, symbols);
  }
  const size_t n = symbols.size();
  if (n > kShortPiece) {
    MergeLong(symbols);
  } else if (n > 1) {
    MergeShort(symbols);
  }
  if (!left_over_.empty()) ReplaceLeftOver(symbols);
}

void Bpe::Tokenize(std::string_view piece, std::vector<int32_t>* ids, std::vector<uint32_t>* sizes) const {
  if (piece.empty()) return;
  if (const Token* token = FindWhole(piece); token != nullptr) {
    return Symbols(ids, sizes).Push(token->id, sizes == nullptr ? 0 : SpelledSize(piece));
  }
  if (options_.bytes) return TokenizeStretch(piece, ids, sizes);
  for (size_t begin = 0; begin < piece.size();) {
    const size_t end = neighbours_.EndOfStretch(piece, begin);
    const std::string_view stretch = piece.substr(begin, end - begin);
    const Token* token = FindWhole(stretch);
    if (token != nullptr && token->whole) {
      Symbols(ids, sizes).Push(token->id, stretch.size());
    } else {
      TokenizeStretch(stretch, ids, sizes);
    }
    begin = end;
  }
}

}  // namespace quire
