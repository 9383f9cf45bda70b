#pragma once

#include <cstddef>
#include <cstdint>

namespace quire::testing {

// Each takes the bytes of one file, opens them as that kind of file and uses all it gives. They must neither crash nor
// run away, whatever the bytes are.
void ParseAsGguf(const uint8_t* data, size_t size);
void ParseAsSafetensors(const uint8_t* data, size_t size);
void ParseAsConfig(const uint8_t* data, size_t size);  // config.json

}  // namespace quire::testing
