#include "block_manager/eviction_order.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_format.h"
#include "kernels/base/check.h"

namespace quire {
namespace {

constexpr int64_t kUnitCost = 1024;
constexpr int32_t kMaxCountedHits = 15;

}  // namespace

bool EvictionOrder::ByValue::operator()(int32_t a, int32_t b) const {
  const auto rank = [this](int32_t i) {
    const Record& r = (*records)[i];
    return std::make_tuple(r.priority, !r.expired, r.score, r.last_use);
  };
  return rank(a) < rank(b);
}

bool EvictionOrder::ByTenant::operator()(int32_t a, int32_t b) const {
  const int32_t tenant_a = (*records)[a].tenant, tenant_b = (*records)[b].tenant;
  if (tenant_a != tenant_b) return tenant_a < tenant_b;
  const bool host_a = (*records)[a].on_host, host_b = (*records)[b].on_host;
  return host_a != host_b ? host_a : ByValue{records}(a, b);
}

bool EvictionOrder::ByExpiry::operator()(int32_t a, int32_t b) const {
  const absl::Time time_a = (*records)[a].expires, time_b = (*records)[b].expires;
  return time_a != time_b ? time_a < time_b : a < b;
}

EvictionOrder::EvictionOrder(int32_t num_blocks, const EvictionOptions& options, int32_t num_host_blocks)
    : policy_(options.policy),
      attention_equal_tokens_(options.attention_equal_tokens),
      max_pinned_(static_cast<int32_t>((num_blocks - 1) * options.max_pinned_share)),
      has_host_(num_host_blocks > 0),
      records_(int64_t{num_blocks} + num_host_blocks),
      order_(num_blocks + num_host_blocks, ByValue{&records_}),
      host_order_(has_host_ ? num_blocks + num_host_blocks : 1, ByValue{&records_}),
      by_tenant_(num_blocks + num_host_blocks, ByTenant{&records_}),
      by_expiry_(num_blocks + num_host_blocks, ByExpiry{&records_}) {
  QUIRE_CHECK(options.attention_equal_tokens >= 1);
  QUIRE_CHECK(options.max_pinned_share >= 0 && options.max_pinned_share <= 1);
}

void EvictionOrder::Add(EntryId entry, EntryId parent, int32_t position, int32_t tenant, const RetentionLevel& level) {
  const int32_t i = Index(entry);
  QUIRE_CHECK(!records_[i].findable && tenant >= 0);
  Record& record = records_[i];
  record = {};
  record.findable = true;
  record.parent = Index(parent);
  record.position = position;
  record.tenant = tenant;
  record.ttl = absl::InfiniteDuration();
  record.expires = absl::InfiniteFuture();
  Stamp(record);
  SetLevel(i, level);
  if (HasQuota(tenant)) ++quotas_[tenant].findable;
}

void EvictionOrder::Remove(EntryId entry) {
  const int32_t i = Index(entry);
  Record& record = records_[i];
  QUIRE_CHECK(record.findable && record.unused_children == 0);
  if (record.unused) SetUsed(entry);
  if (by_expiry_.Contains(i)) by_expiry_.Erase(i);
  num_pinned_ -= record.priority > kDefaultRetention;
  if (HasQuota(record.tenant)) --quotas_[record.tenant].findable;
  record.findable = false;
}

// Puts an entry where it must stand, or takes it out of where it must not. What its place depends on may only change
// while it stands nowhere, but for whether it is unused and what is behind it.
void EvictionOrder::Settle(int32_t i) {
  const Record& record = records_[i];
  const auto set = [i](auto& order, bool in) {
    if (order.Contains(i) != in) in ? order.Insert(i) : order.Erase(i);
  };
  const bool childless = record.unused && record.unused_children == 0;
  if (record.on_host) {
    set(host_order_, childless);
  } else {
    set(order_, record.unused && record.unused_device_children == 0);
  }
  if (HasQuota(record.tenant)) set(by_tenant_, childless);
}

void EvictionOrder::Unline(int32_t i) {
  const auto erase = [i](auto& order) {
    if (order.Contains(i)) order.Erase(i);
  };
  records_[i].on_host ? erase(host_order_) : erase(order_);
  erase(by_tenant_);
}

void EvictionOrder::CountUnusedChild(const Record& child, int32_t sign) {
  if (child.parent == 0) return;
  Record& parent = records_[child.parent];
  parent.unused_children += sign;
  if (!child.on_host) parent.unused_device_children += sign;
  if (parent.unused) Settle(child.parent);
}

void EvictionOrder::Stamp(Record& record) {
  record.last_use = next_use_++;
  record.last_used = now_;
  if (policy_ == EvictionPolicy::kLru) return;
  const int64_t cost = kUnitCost + kUnitCost * record.position / attention_equal_tokens_;
  record.score = clock_ + cost * (1 + std::min(record.hits, kMaxCountedHits));
}

void EvictionOrder::SetUnused(EntryId entry) {
  const int32_t i = Index(entry);
  Record& record = records_[i];
  QUIRE_DCHECK(record.findable && !record.unused);
  record.unused = true;
  Stamp(record);
  if (record.unused_device_children == 0) Settle(i);  // otherwise it stands nowhere
  CountUnusedChild(record, 1);
}

void EvictionOrder::SetUsed(EntryId entry) {
  const int32_t i = Index(entry);
  Record& record = records_[i];
  QUIRE_DCHECK(record.findable && record.unused);
  record.unused = false;
  if (record.unused_device_children == 0) Settle(i);  // otherwise it stood nowhere
  CountUnusedChild(record, -1);
}

void EvictionOrder::SetOnHost(EntryId entry, bool on_host) {
  const int32_t i = Index(entry);
  Record& record = records_[i];
  QUIRE_DCHECK(record.findable && record.on_host != on_host);
  Unline(i);
  if (record.unused) CountUnusedChild(record, -1);
  record.on_host = on_host;
  if (record.unused) CountUnusedChild(record, 1);
  Settle(i);
}

void EvictionOrder::SetLevel(int32_t i, const RetentionLevel& level) {
  Record& record = records_[i];
  if (by_expiry_.Contains(i)) by_expiry_.Erase(i);
  num_pinned_ -= record.priority > kDefaultRetention;
  const bool pinned = level.priority > kDefaultRetention;
  const bool refused = pinned && num_pinned_ >= max_pinned_;
  num_pins_refused_ += refused;
  num_pinned_ += pinned && !refused;
  record.priority = static_cast<int16_t>(refused ? kDefaultRetention : level.priority);
  record.ttl = refused ? absl::InfiniteDuration() : level.ttl;
  record.expires = now_ + record.ttl;
  record.expired = false;
  if (record.ttl != absl::InfiniteDuration()) by_expiry_.Insert(i);
}

void EvictionOrder::CountHit(EntryId entry, const RetentionLevel& level) {
  const int32_t i = Index(entry);
  Record& record = records_[i];
  QUIRE_DCHECK(record.findable);
  Unline(i);
  ++record.hits;
  record.off_host = false;
  Stamp(record);
  const bool stronger = level.priority > record.priority ||
                        (level.priority == record.priority && level.ttl > record.ttl) || record.expired;
  SetLevel(i, stronger ? level : RetentionLevel{record.priority, record.ttl});
  Settle(i);
}

void EvictionOrder::Touch(EntryId entry) {
  const int32_t i = Index(entry);
  Unline(i);
  Stamp(records_[i]);
  Settle(i);
}

void EvictionOrder::AdvanceTime(absl::Time now) {
  now_ = std::max(now_, now);
  for (int32_t i = by_expiry_.First(); i != 0 && records_[i].expires <= now_; i = by_expiry_.First()) {
    Record& record = records_[i];
    Unline(i);
    by_expiry_.Erase(i);
    if (record.priority > kDefaultRetention) {
      record.priority = kDefaultRetention;
      --num_pinned_;
    }
    record.expired = true;
    Settle(i);
  }
}

void EvictionOrder::Evicted(EntryId entry) { clock_ = std::max(clock_, records_[Index(entry)].score); }

bool EvictionOrder::MayReplace(EntryId entry, EntryId on_host) const {
  return ByValue{&records_}(Index(on_host), Index(entry));
}

void EvictionOrder::SetQuota(int32_t tenant, int32_t quota) {
  QUIRE_CHECK(tenant >= 1 && quota >= -1);
  if (tenant >= static_cast<int32_t>(quotas_.size())) quotas_.resize(tenant + 1);
  quotas_[tenant] = {quota, 0};
  for (int32_t i = 1; i < static_cast<int32_t>(records_.size()); ++i) {
    const Record& record = records_[i];
    if (!record.findable || record.tenant != tenant) continue;
    quotas_[tenant].findable += quota >= 0;
    if (by_tenant_.Contains(i)) by_tenant_.Erase(i);
    if (quota >= 0 && record.unused && record.unused_children == 0) by_tenant_.Insert(i);
  }
}

int32_t EvictionOrder::Excess(int32_t tenant) const {
  return HasQuota(tenant) ? quotas_[tenant].findable + 1 - quotas_[tenant].limit : 0;
}

EntryId EvictionOrder::NextOf(int32_t tenant) const {
  const int32_t i = by_tenant_.Locate([&](int32_t entry) { return records_[entry].tenant < tenant; }).first_after;
  return i != 0 && records_[i].tenant == tenant ? EntryId{i} : kNoEntry;
}

EvictionOrder::Info EvictionOrder::info(EntryId entry) const {
  const Record& record = records_[Index(entry)];
  QUIRE_CHECK(record.findable);
  return {record.priority, record.expires, record.last_used, record.hits, record.tenant};
}

absl::Status EvictionOrder::CheckInvariants() const {
  std::vector<int32_t> unused_children(records_.size()), unused_device_children(records_.size());
  std::vector<int32_t> findable_of(quotas_.size());
  int32_t pinned = 0;
  for (size_t i = 1; i < records_.size(); ++i) {
    const Record& record = records_[i];
    if (record.findable && record.unused) ++unused_children[record.parent];
    if (record.findable && record.unused && !record.on_host) ++unused_device_children[record.parent];
    pinned += record.findable && record.priority > kDefaultRetention;
    if (record.findable && HasQuota(record.tenant)) ++findable_of[record.tenant];
  }
  for (int32_t i = 1; i < static_cast<int32_t>(records_.size()); ++i) {
    const Record& record = records_[i];
    const bool unused = record.findable && record.unused, childless = unused && unused_children[i] == 0;
    const bool leaf = unused && unused_device_children[i] == 0 && !record.on_host;
    const bool host_leaf = childless && record.on_host;
    const bool runs = record.findable && record.ttl != absl::InfiniteDuration() && !record.expired;
    if (record.findable &&
        (record.unused_children != unused_children[i] || record.unused_device_children != unused_device_children[i])) {
      return absl::InternalError(absl::StrFormat("entry %d: %d unused ones behind it, %d counted", i,
                                                 unused_children[i], record.unused_children));
    }
    if (order_.Contains(i) != leaf || (has_host_ && host_order_.Contains(i) != host_leaf) ||
        (record.findable && record.on_host && !has_host_) ||
        by_tenant_.Contains(i) != (childless && HasQuota(record.tenant)) || by_expiry_.Contains(i) != runs) {
      return absl::InternalError(absl::StrFormat("entry %d stands in a wrong order of eviction", i));
    }
  }
  for (const Treap<ByValue>* order : {&order_, &host_order_}) {
    int32_t previous = 0;
    for (int32_t i = order->First(); i != 0; previous = i, i = order->Next(i)) {
      if (previous != 0 && !ByValue{&records_}(previous, i)) {
        return absl::InternalError(absl::StrFormat("entries %d and %d are evicted in the wrong order", previous, i));
      }
    }
  }
  if (pinned != num_pinned_ || pinned > max_pinned_) {
    return absl::InternalError(
        absl::StrFormat("%d blocks are pinned, %d counted, %d allowed", pinned, num_pinned_, max_pinned_));
  }
  for (size_t tenant = 0; tenant < quotas_.size(); ++tenant) {
    if (quotas_[tenant].limit >= 0 && quotas_[tenant].findable != findable_of[tenant]) {
      return absl::InternalError(absl::StrFormat("tenant %d has %d findable blocks, %d counted", tenant,
                                                 findable_of[tenant], quotas_[tenant].findable));
    }
  }
  return absl::OkStatus();
}

}  // namespace quire
