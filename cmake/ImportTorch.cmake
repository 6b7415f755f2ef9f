# LibTorch from a pip wheel, imported by hand: find_package(Torch) insists on a CUDA toolkit and
# enables the CUDA language, which a CPU build must not need.
#   torch::cpu   c10 + torch_cpu, enough to train on the emulated device
set(SLUICE_VENV ${CMAKE_SOURCE_DIR}/.venv CACHE PATH "Python venv that holds the torch wheel")
file(GLOB _torch_dirs ${SLUICE_VENV}/lib/python3*/site-packages/torch)
if(NOT _torch_dirs)
  message(FATAL_ERROR "No torch wheel in ${SLUICE_VENV}. Run scripts/setup, or set SLUICE_VENV; "
                      "-DSLUICE_TORCH=OFF builds the parts that do not need it.")
endif()
list(GET _torch_dirs 0 SLUICE_TORCH_DIR)

add_library(torch::c10 SHARED IMPORTED)
set_target_properties(torch::c10 PROPERTIES IMPORTED_LOCATION ${SLUICE_TORCH_DIR}/lib/libc10.so)
add_library(torch::torch_cpu SHARED IMPORTED)
set_target_properties(torch::torch_cpu PROPERTIES IMPORTED_LOCATION ${SLUICE_TORCH_DIR}/lib/libtorch_cpu.so)

# The wheel's own OpenMP runtime: code compiled with -fopenmp must share it, since two copies would be two thread teams.
add_library(torch::gomp SHARED IMPORTED)
set_target_properties(torch::gomp PROPERTIES IMPORTED_LOCATION ${SLUICE_TORCH_DIR}/lib/libgomp.so.1)

add_library(torch::cpu INTERFACE IMPORTED)
# -idirafter: the wheel ships its own fmt; ours must win.
target_compile_options(torch::cpu INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-idirafter${SLUICE_TORCH_DIR}/include>
  $<$<COMPILE_LANGUAGE:CXX>:-idirafter${SLUICE_TORCH_DIR}/include/torch/csrc/api/include>)
target_compile_definitions(torch::cpu INTERFACE _GLIBCXX_USE_CXX11_ABI=1)
target_link_libraries(torch::cpu INTERFACE torch::torch_cpu torch::c10 torch::gomp)
# The wheel's libraries find CUDA, when they need it, by the loader's cache; the linker need not resolve that.
target_link_options(torch::cpu INTERFACE -Wl,--allow-shlib-undefined -Wl,--unresolved-symbols=ignore-in-shared-libs)
