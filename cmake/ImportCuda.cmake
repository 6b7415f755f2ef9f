# nccl::nccl, where SLUICE_HAS_NCCL
# SLUICE_CUDA: AUTO (on when a CUDA 13 toolkit is found), ON (an error without one), OFF. The answer is SLUICE_HAS_CUDA.
# torch::cuda  torch::cpu with LibTorch's CUDA libraries and the CUDA runtime
set(SLUICE_CUDA AUTO CACHE STRING "Build the CUDA device: AUTO (when a CUDA 13 toolkit is found), ON or OFF")
set_property(CACHE SLUICE_CUDA PROPERTY STRINGS AUTO ON OFF)
set(SLUICE_CUDA_ARCHITECTURES "80-real;86-real;89-real;90;120" CACHE STRING
    "GPU architectures; one without -real also carries PTX, for GPUs that are newer")
set(SLUICE_HAS_CUDA OFF)
set(SLUICE_HAS_NCCL OFF)

# Under a sanitizer the CUDA parts would need its own exceptions for the driver; their host logic is tested without them.
if(SLUICE_CUDA STREQUAL "OFF" OR (SLUICE_CUDA STREQUAL "AUTO" AND SLUICE_SANITIZE))
  return()
endif()
find_package(CUDAToolkit 13 QUIET)
if(NOT CUDAToolkit_FOUND OR NOT EXISTS ${SLUICE_TORCH_DIR}/lib/libtorch_cuda.so)
  if(SLUICE_CUDA STREQUAL "AUTO")
    message(STATUS "No CUDA 13 toolkit, or no CUDA in the torch wheel: building without CUDA")
    return()
  endif()
  message(FATAL_ERROR "SLUICE_CUDA=ON needs a CUDA 13 toolkit (nvcc on PATH or in /usr/local/cuda) and a CUDA wheel of torch")
endif()

if(NOT CMAKE_CUDA_COMPILER)
  set(CMAKE_CUDA_COMPILER ${CUDAToolkit_NVCC_EXECUTABLE})
endif()
if(CMAKE_CXX_COMPILER_LAUNCHER AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()
set(CMAKE_CUDA_ARCHITECTURES ${SLUICE_CUDA_ARCHITECTURES})
set(CMAKE_CUDA_STANDARD 17)  # CMake 3.25 knows no flag for C++20 with nvcc 13
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)
# LibTorch has the shared runtime: a static one beside it would be a second error state and a second context.
set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
enable_language(CUDA)
set(SLUICE_HAS_CUDA ON)

add_library(torch::c10_cuda SHARED IMPORTED)
set_target_properties(torch::c10_cuda PROPERTIES IMPORTED_LOCATION ${SLUICE_TORCH_DIR}/lib/libc10_cuda.so)
add_library(torch::torch_cuda SHARED IMPORTED)
set_target_properties(torch::torch_cuda PROPERTIES IMPORTED_LOCATION ${SLUICE_TORCH_DIR}/lib/libtorch_cuda.so)
add_library(torch::cuda INTERFACE IMPORTED)
# No symbol of libtorch_cuda is named by us, but loading it registers the CUDA kernels: the linker must keep it.
target_link_options(torch::cuda INTERFACE -Wl,--no-as-needed)
target_link_libraries(torch::cuda INTERFACE torch::torch_cuda torch::c10_cuda torch::cpu CUDA::cudart)

# Ranks with a GPU each. The library is the one that LibTorch loads: the wheel's, or else the system's.
file(GLOB _nccl_wheel ${SLUICE_VENV}/lib/python3*/site-packages/nvidia/nccl)
find_path(SLUICE_NCCL_INCLUDE nccl.h HINTS ${_nccl_wheel}/include ${CUDAToolkit_INCLUDE_DIRS})
find_library(SLUICE_NCCL_LIBRARY NAMES libnccl.so.2 nccl HINTS ${_nccl_wheel}/lib ${CUDAToolkit_LIBRARY_DIR})
if(SLUICE_NCCL_INCLUDE AND SLUICE_NCCL_LIBRARY)
  set(SLUICE_HAS_NCCL ON)
  add_library(nccl::nccl SHARED IMPORTED)
  set_target_properties(nccl::nccl PROPERTIES IMPORTED_LOCATION ${SLUICE_NCCL_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${SLUICE_NCCL_INCLUDE})
else()
  message(STATUS "No NCCL (nccl.h, libnccl.so.2): building without ranks on CUDA devices")
endif()
