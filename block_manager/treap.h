#pragma once

#include <cstdint>
#include <vector>

#include "kernels/base/check.h"

namespace quire {

// An ordered set of numbers in 1 .. capacity - 1, each at most once, in the order of `Less`, which must be a strict
// total order over those in the set and must not change while they are in it.
//
// A treap (Seidel and Aragon, Randomized Search Trees, 1996) whose heap priorities are a hash of the number: expected
// O(log n) an operation, erasing O(1) rotations. Numbers stand for whatever the owner keeps by number, so that nothing
// is allocated after construction. 0 means none.
template <typename Less>
class Treap {
 public:
  Treap(int32_t capacity, Less less) : less_(less), nodes_(capacity) {}

  bool Contains(int32_t i) const { return nodes_[i].parent != kAbsent; }
  bool empty() const { return nodes_[kHead].right == 0; }

  // `i` must not be in the set.
  void Insert(int32_t i) {
    QUIRE_DCHECK(i > 0 && !Contains(i));
    int32_t parent = kHead, at = nodes_[kHead].right;
    bool left = false;
    while (at != 0) {
      parent = at;
      left = less_(i, at);
      at = left ? nodes_[at].left : nodes_[at].right;
    }
    Attach(i, parent, left);
  }

  // The same where Locate has found the place of `i`, and nothing has changed since. Compares nothing.
  struct Gap;
  void InsertAt(const Gap& gap, int32_t i) {
    QUIRE_DCHECK(i > 0 && !Contains(i));
    // Of two neighbours one stands above the other, and the lower one has nothing between them.
    const bool left = gap.first_after != 0 && (gap.last_before == 0 || nodes_[gap.last_before].right != 0);
    Attach(i, left ? gap.first_after : gap.last_before, left);
  }

  // `i` must be in the set. Compares nothing.
  void Erase(int32_t i) {
    QUIRE_DCHECK(i > 0 && Contains(i));
    Node& node = nodes_[i];
    while (node.left != 0 && node.right != 0)
      RotateUp(Priority(node.left) > Priority(node.right) ? node.left : node.right);
    const int32_t child = node.left != 0 ? node.left : node.right;
    (nodes_[node.parent].left == i ? nodes_[node.parent].left : nodes_[node.parent].right) = child;
    if (child != 0) nodes_[child].parent = node.parent;
    node.parent = kAbsent;
  }

  // The first in order; 0 if empty.
  int32_t First() const {
    int32_t at = nodes_[kHead].right;
    while (nodes_[at].left != 0) at = nodes_[at].left;
    return at;
  }

  // The one that follows `i`, which must be in the set; 0 behind the last.
  int32_t Next(int32_t i) const {
    if (int32_t at = nodes_[i].right; at != 0) {
      while (nodes_[at].left != 0) at = nodes_[at].left;
      return at;
    }
    int32_t parent = nodes_[i].parent;
    while (parent != kHead && nodes_[parent].right == i) {
      i = parent;
      parent = nodes_[i].parent;
    }
    return parent;
  }

  // For checks, beside a walk in order: its neighbour above knows `i`, which must be in the set, and ranks above it.
  bool IsLinked(int32_t i) const {
    const int32_t parent = nodes_[i].parent;
    return (nodes_[parent].left == i || nodes_[parent].right == i) &&
           (parent == kHead || Priority(parent) > Priority(i));
  }

  // Where a key stands: the last of those for which `before` holds and the first of the others; 0: none. All for which
  // it holds must come first in order.
  struct Gap {
    int32_t last_before = 0, first_after = 0;
  };
  template <typename Before>
  Gap Locate(Before before) const {
    Gap gap;
    for (int32_t at = nodes_[kHead].right; at != 0;) {
      if (before(at)) {
        gap.last_before = at;
        at = nodes_[at].right;
      } else {
        gap.first_after = at;
        at = nodes_[at].left;
      }
    }
    return gap;
  }

 private:
  static constexpr int32_t kHead = 0;  // the root is its right child
  static constexpr int32_t kAbsent = -1;

  struct Node {
    int32_t parent = kAbsent, left = 0, right = 0;
  };

  // murmur3's finalizer (public domain, A. Appleby): a bijection, so no two numbers are equal.
  static uint32_t Priority(int32_t i) {
    auto x = static_cast<uint32_t>(i);
    x = (x ^ (x >> 16)) * 0x85ebca6bu;
    x = (x ^ (x >> 13)) * 0xc2b2ae35u;
    return x ^ (x >> 16);
  }

  // Below `parent`, which has nothing there, and then up to where its priority belongs.
  void Attach(int32_t i, int32_t parent, bool left) {
    nodes_[i] = {parent, 0, 0};
    (left ? nodes_[parent].left : nodes_[parent].right) = i;
    while (nodes_[i].parent != kHead && Priority(i) > Priority(nodes_[i].parent)) RotateUp(i);
  }

  // `i` takes the place of its parent and keeps the order.
  void RotateUp(int32_t i) {
    const int32_t parent = nodes_[i].parent, above = nodes_[parent].parent;
    int32_t moved = 0;
    if (nodes_[parent].left == i) {
      moved = nodes_[parent].left = nodes_[i].right;
      nodes_[i].right = parent;
    } else {
      moved = nodes_[parent].right = nodes_[i].left;
      nodes_[i].left = parent;
    }
    if (moved != 0) nodes_[moved].parent = parent;
    nodes_[parent].parent = i;
    nodes_[i].parent = above;
    (nodes_[above].left == parent ? nodes_[above].left : nodes_[above].right) = i;
  }

  Less less_;
  std::vector<Node> nodes_;
};

}  // namespace quire
