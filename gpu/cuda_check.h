// Errors of the CUDA runtime as base::Error. Internal to the CUDA device.
#pragma once
#include <cuda_runtime_api.h>

#include <exception>
#include <functional>
#include <string>

#include "base/error.h"

namespace sluice::gpu::cuda {

// After one of these the context is lost: every later call of the process fails with it, and nothing clears it.
bool is_lost(cudaError_t error);

// device_memory: no memory; config: no usable device, driver or kernel image; bug: the rest.
base::ErrorKind kind_of(cudaError_t error);

// What happened, in one line: the call, CUDA's name and text, and what to do.
std::string explain(cudaError_t error, const std::string& call);

// Throws for anything but success, and takes the error out of the thread's CUDA state, so that the next call does not report it
// again. `call`: the function, with what matters of its arguments.
void check(cudaError_t error, const char* call);
inline void check(int error, const char* call) { check(static_cast<cudaError_t>(error), call); }
void check(cudaError_t error, const char* call, const std::string& details);

// In destructors: takes the error out of the state, says nothing.
void ignore(cudaError_t error) noexcept;
// The same for LibTorch's calls, which throw: on a lost device nothing can be given back, and the first error is already on its way.
void quietly(const std::function<void()>& work) noexcept;

// Error(config) for variables of the environment that LibTorch or cuBLAS would follow, against the plan or the bits.
void check_environment(bool deterministic);

// Makes the device the calling thread's current one, for good: a new thread is on device 0, where any call of it would make a
// context, half a gigabyte of a GPU that is another rank's. A failure shows in the call that follows.
void use_device(int device) noexcept;

// Runs LibTorch or CUDA work; exceptions of LibTorch become base::Error with the state cleared, others pass.
void translate_errors(const std::function<void()>& work);

}  // namespace sluice::gpu::cuda
