// Precompiled for sluice_engine: the narrow LibTorch headers its files share. Nothing may rely on it; files
// include what they use.
#pragma once
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/variable.h>
