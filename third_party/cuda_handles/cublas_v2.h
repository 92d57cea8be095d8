#pragma once
using cublasHandle_t = struct cublasContext*;
enum cublasStatus_t : int;
