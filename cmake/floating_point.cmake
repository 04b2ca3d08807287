# The flags that the promise rests on, in one place. They stand last on our targets, so that global flags
# of an embedding project cannot loosen them.
function(bitexact_exact_floating_point target)
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANGUAGE:CXX>:-fno-fast-math;-ffp-contract=off>
    $<$<COMPILE_LANGUAGE:CUDA>:--fmad=false;--ftz=false;--prec-div=true;--prec-sqrt=true>)
endfunction()

# nvcc's fast-math also swaps functions, which no later flag undoes and no macro shows: refused here. The
# host compilers' is overruled above, and the sources fail to build should it get through.
function(bitexact_refuse_inexact_cuda)
  get_directory_property(options COMPILE_OPTIONS)
  string(TOUPPER "${CMAKE_BUILD_TYPE}" configuration)
  set(flags "${CMAKE_CUDA_FLAGS} ${CMAKE_CUDA_FLAGS_${configuration}} ${options}"
            "$ENV{NVCC_PREPEND_FLAGS} $ENV{NVCC_APPEND_FLAGS}")
  if(flags MATCHES "use.fast.math")
    message(FATAL_ERROR "bitexact cannot be built with fast-math: it changes bits. "
                        "Take --use_fast_math out of the flags for CUDA.")
  endif()
endfunction()
