#pragma once
using cusparseHandle_t = struct cusparseContext*;
