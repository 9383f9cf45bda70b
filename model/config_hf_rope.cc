#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "kernels/base/status_macros.h"
#include "model/config_hf.h"
#include "model/config_limits.h"
#include "model/json.h"
#include "model/printable.h"

namespace quire {
namespace {

using nlohmann::json;
using Type = RopeConfig::Type;
using namespace config_limits;  // NOLINT: constants only

std::optional<Type> ParseType(std::string_view name) {
  constexpr std::pair<std::string_view, Type> kTypes[] = {
      {"default", Type::kDefault}, {"linear", Type::kLinear}, {"dynamic", Type::kDynamic},
      {"yarn", Type::kYarn},       {"llama3", Type::kLlama3}, {"longrope", Type::kLongrope},
  };
  for (const auto& [known, type] : kTypes) {
    if (known == name) return type;
  }
  return std::nullopt;
}

json WithoutTheta(json scaling) {
  if (scaling.is_object()) scaling.erase("rope_theta");
  return scaling;
}

// The object that says how to scale, null if there is none.
absl::StatusOr<const json*> FindScaling(const JsonFields& config, const std::string& where) {
  const json* old_spelling = config.Find("rope_scaling");
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const json* value = config.Find(key);
    if (value == nullptr) continue;
    if (!value->is_object()) return config.Error(key, "an object is needed");
    if (old_spelling != nullptr && WithoutTheta(*old_spelling) != WithoutTheta(*value)) {
      return config.Error(key, "but rope_scaling is given too and says something else");
    }
    for (const auto& [name, member] : value->items()) {
      if (member.is_object()) {
        return absl::UnimplementedError(
            absl::StrFormat("%s: %s by layer type ('%s') is not supported", where, key, Printable(name)));
      }
    }
    return value;
  }
  return nullptr;
}

absl::StatusOr<double> ReadTheta(const json& config, const JsonFields& fields, const JsonFields* scaling) {
  if (scaling != nullptr && scaling->Has("rope_theta")) {
    return scaling->Float("rope_theta", kMinRopeTheta, kMaxRopeTheta);
  }
  if (fields.Has("rope_theta")) return fields.Float("rope_theta", kMinRopeTheta, kMaxRopeTheta);
  // A null that nothing replaces is a mistake of whoever wrote the file, not a wish for the default.
  if (config.contains("rope_theta")) return fields.Error("rope_theta", "and rope_parameters do not give it either");
  return 10000.0;
}

absl::StatusOr<std::vector<double>> ReadFactors(const JsonFields& scaling, const char* key, int32_t count) {
  const json* value = scaling.Find(key);
  const std::string wanted = absl::StrFormat("%d numbers above 0 are needed", count);
  if (value == nullptr || !value->is_array() || value->size() != static_cast<size_t>(count)) {
    return scaling.Error(key, wanted);
  }
  std::vector<double> factors;
  for (const json& number : *value) {
    if (!number.is_number() || !(number.get<double>() > 0)) return scaling.Error(key, wanted);
    factors.push_back(number.get<double>());
  }
  return factors;
}

absl::Status ReadLlama3(const JsonFields& scaling, RopeConfig* rope) {
  QUIRE_ASSIGN_OR_RETURN(rope->low_freq_factor, scaling.Float("low_freq_factor", 1e-6, 1e6));
  QUIRE_ASSIGN_OR_RETURN(rope->high_freq_factor, scaling.Float("high_freq_factor", 1e-6, 1e6));
  if (rope->high_freq_factor <= rope->low_freq_factor) {
    return scaling.Error("high_freq_factor", "it must be above low_freq_factor");
  }
  return absl::OkStatus();
}

absl::Status ReadYarn(const JsonFields& scaling, RopeConfig* rope) {
  QUIRE_ASSIGN_OR_RETURN(rope->beta_fast, scaling.FloatOr("beta_fast", 32, 1e-6, 1e6));
  QUIRE_ASSIGN_OR_RETURN(rope->beta_slow, scaling.FloatOr("beta_slow", 1, 1e-6, 1e6));
  QUIRE_ASSIGN_OR_RETURN(rope->attention_factor, scaling.OptionalFloat("attention_factor", 1e-6, 1e6));
  QUIRE_ASSIGN_OR_RETURN(rope->mscale, scaling.OptionalFloat("mscale", 0, 1e6));
  QUIRE_ASSIGN_OR_RETURN(rope->mscale_all_dim, scaling.OptionalFloat("mscale_all_dim", 0, 1e6));
  QUIRE_ASSIGN_OR_RETURN(rope->truncate, scaling.BoolOr("truncate", true));
  return absl::OkStatus();
}

absl::Status ReadLongrope(const JsonFields& scaling, RopeConfig* rope) {
  QUIRE_ASSIGN_OR_RETURN(rope->factor, scaling.FloatOr("factor", 1, kMinRopeFactor, kMaxRopeFactor));
  QUIRE_ASSIGN_OR_RETURN(rope->attention_factor, scaling.OptionalFloat("attention_factor", 1e-6, 1e6));
  QUIRE_ASSIGN_OR_RETURN(rope->short_factor, ReadFactors(scaling, "short_factor", rope->rotary_dim / 2));
  QUIRE_ASSIGN_OR_RETURN(rope->long_factor, ReadFactors(scaling, "long_factor", rope->rotary_dim / 2));
  return absl::OkStatus();
}

// The keys of rope->type beside theta.
absl::Status ReadScaling(const JsonFields& scaling, const JsonFields& config, int32_t max_positions, RopeConfig* rope) {
  if (rope->type == Type::kDefault) return absl::OkStatus();
  if (rope->type != Type::kLongrope) {
    QUIRE_ASSIGN_OR_RETURN(rope->factor, scaling.Float("factor", kMinRopeFactor, kMaxRopeFactor));
  }
  if (rope->type == Type::kLinear || rope->type == Type::kDynamic) return absl::OkStatus();

  const char* kOriginal = "original_max_position_embeddings";
  // Phi-3 keeps it beside the object.
  const JsonFields& original = config.Has(kOriginal) && !scaling.Has(kOriginal) ? config : scaling;
  if (rope->type == Type::kYarn && !original.Has(kOriginal)) {
    rope->original_max_position_embeddings = max_positions;
  } else {
    QUIRE_ASSIGN_OR_RETURN(rope->original_max_position_embeddings, original.Int(kOriginal, 1, kMaxPositions));
  }
  if (rope->type == Type::kLlama3) return ReadLlama3(scaling, rope);
  if (rope->type == Type::kYarn) return ReadYarn(scaling, rope);
  return ReadLongrope(scaling, rope);
}

}  // namespace

absl::StatusOr<RopeConfig> ParseHfRope(const json& config, int32_t head_dim, int32_t max_position_embeddings,
                                       const std::string& where) {
  const JsonFields fields(config, where);
  QUIRE_ASSIGN_OR_RETURN(const json* scaling_object, FindScaling(fields, where));
  const json none = json::object();
  const JsonFields scaling(scaling_object != nullptr ? *scaling_object : none, where + ": rope scaling");

  RopeConfig rope;
  QUIRE_ASSIGN_OR_RETURN(rope.theta, ReadTheta(config, fields, &scaling));
  const JsonFields& partial = scaling.Has("partial_rotary_factor") ? scaling : fields;
  QUIRE_ASSIGN_OR_RETURN(const double share, partial.FloatOr("partial_rotary_factor", 1, 0, 1));
  rope.rotary_dim = static_cast<int32_t>(head_dim * share);
  if (rope.rotary_dim < 2 || rope.rotary_dim % 2 != 0) {
    return partial.Error("partial_rotary_factor",
                         absl::StrFormat("which leaves %d of %d dimensions to rotate: an even number above 0 is needed",
                                         rope.rotary_dim, head_dim));
  }

  const char* type_key = scaling.Has("rope_type") ? "rope_type" : "type";
  if (!scaling.Has(type_key)) {
    // transformers 5 leaves the type out where it is the default.
    for (const auto& [key, value] : (scaling_object != nullptr ? *scaling_object : none).items()) {
      if (key == "rope_theta" || key == "partial_rotary_factor" || value.is_null()) continue;
      return scaling.Error(key.c_str(), "but rope_type is missing");
    }
    return rope;
  }
  QUIRE_ASSIGN_OR_RETURN(const std::string name, scaling.String(type_key));
  const std::optional<Type> type = ParseType(name);
  if (!type) {
    return absl::UnimplementedError(
        absl::StrFormat("%s: rope type '%s' is not known: default, linear, dynamic, yarn, llama3, longrope are", where,
                        Printable(name)));
  }
  rope.type = *type;
  QUIRE_RETURN_IF_ERROR(ReadScaling(scaling, fields, max_position_embeddings, &rope));
  return rope;
}

}  // namespace quire
