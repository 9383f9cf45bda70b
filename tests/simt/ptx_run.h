#pragma once

#include <string>

namespace quire::simt {

// Makes all later launches run the kernels of this PTX file, interpreted, in place of their source. May be called for
// several files. std::runtime_error if the file is not what the interpreter knows.
void ReadPtx(const std::string& path);

}  // namespace quire::simt
