# One way to declare a layer (sluice_layer) and a test (sluice_test).
include(GNUInstallDirs)

# Compile options shared by every target. No -march=native: kernels dispatch at run time.
# -ffp-contract=off: a fused multiply-add happens only where the source says std::fma.
add_library(sluice_options INTERFACE)
target_include_directories(sluice_options INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_options(sluice_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wshadow -Wno-missing-field-initializers -Werror -ffp-contract=off -fpch-preprocess>
  "$<$<COMPILE_LANGUAGE:CUDA>:--Werror=all-warnings;-Xcompiler=-Wall,-Wextra,-Wshadow,-Werror;-fmad=false>")
if(SLUICE_SANITIZE)
  string(REPLACE ";" "," _sanitizers "${SLUICE_SANITIZE}")
  target_compile_options(sluice_options INTERFACE -fsanitize=${_sanitizers} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(sluice_options INTERFACE -fsanitize=${_sanitizers})
endif()

# sluice_layer(NAME SOURCES a.cc ... DEPS target ...)  ->  static library sluice_NAME, alias sluice::NAME
function(sluice_layer NAME)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(sluice_${NAME} STATIC ${ARG_SOURCES})
  add_library(sluice::${NAME} ALIAS sluice_${NAME})
  target_link_libraries(sluice_${NAME} PUBLIC sluice_options ${ARG_DEPS} PRIVATE ${ARG_PRIVATE_DEPS})
endfunction()

# sluice_test(NAME SOURCES a_test.cc ... DEPS target ... [LABELS slow] [TIMEOUT s])
# One executable, each TEST() a ctest test. Tests with "Slow" in their name carry the label "slow".
include(GoogleTest)
function(sluice_test NAME)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;DEPS;LABELS;ENVIRONMENT" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  add_executable(${NAME} ${ARG_SOURCES})
  target_link_libraries(${NAME} PRIVATE ${ARG_DEPS} sluice_test_paths GTest::gtest GTest::gmock GTest::gtest_main)
  set(_quick TIMEOUT ${ARG_TIMEOUT})
  set(_slow TIMEOUT 3600 LABELS slow)
  if(ARG_LABELS)
    list(APPEND _quick LABELS ${ARG_LABELS})
  endif()
  if(ARG_ENVIRONMENT)
    list(APPEND _quick ENVIRONMENT "${ARG_ENVIRONMENT}")
    list(APPEND _slow ENVIRONMENT "${ARG_ENVIRONMENT}")
  endif()
  gtest_discover_tests(${NAME} TEST_FILTER "-*Slow*" DISCOVERY_TIMEOUT 60 PROPERTIES ${_quick})
  gtest_discover_tests(${NAME} TEST_FILTER "*Slow*" TEST_LIST ${NAME}_SLOW DISCOVERY_TIMEOUT 60 PROPERTIES ${_slow})
endfunction()
