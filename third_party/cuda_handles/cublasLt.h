#pragma once
using cublasLtHandle_t = struct cublasLtContext*;
