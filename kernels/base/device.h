#pragma once

#include <optional>
#include <string_view>

namespace quire {

// What runs a model (--device).
//   kCpu        the fast CPU backend
//   kReference  plain f32, the oracle and baseline
//   kSim        no arithmetic: a time model; for scheduler, load and drain tests
//   kCuda       an NVIDIA GPU (compiled in with QUIRE_WITH_CUDA)
enum class DeviceKind { kCpu, kReference, kSim, kCuda };

constexpr std::string_view Name(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::kCpu:
      return "cpu";
    case DeviceKind::kReference:
      return "reference";
    case DeviceKind::kSim:
      return "sim";
    case DeviceKind::kCuda:
      return "cuda";
  }
  return "?";
}

// The inverse of Name; nullopt for anything else.
constexpr std::optional<DeviceKind> ParseDeviceKind(std::string_view text) {
  for (DeviceKind kind : {DeviceKind::kCpu, DeviceKind::kReference, DeviceKind::kSim, DeviceKind::kCuda}) {
    if (text == Name(kind)) return kind;
  }
  return std::nullopt;
}

}  // namespace quire
