#pragma once

#include <string>

#include "server/http/json_fields.h"

namespace quire {

// The beginning of an OpenAPI document (3.1): everything but `paths`, which AddOpenApiRoute fills.
Json OpenApiDocument(const std::string& version);

// Describes a route: "GET", "/v1/models/" (one that ends in '/' stands for all below it).
void AddOpenApiRoute(const std::string& method, const std::string& path, Json* document);

}  // namespace quire
