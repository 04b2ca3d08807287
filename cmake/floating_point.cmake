# The flags that the promise rests on, in one place. They stand last on our targets, so that global flags
# of an embedding project cannot loosen them; a fast-math build fails in the sources themselves.
function(bitexact_exact_floating_point target)
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANGUAGE:CXX>:-fno-fast-math;-ffp-contract=off>
    $<$<COMPILE_LANGUAGE:CUDA>:--fmad=false;--ftz=false;--prec-div=true;--prec-sqrt=true>)
endfunction()
