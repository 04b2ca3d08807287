// Machines that one cannot have all at once: no driver, old drivers, no device, several, of every architecture,
// devices that the library has no code for, streams that capture.
#include <cuda_runtime_api.h>

#include <cstdlib>

#include "fake_cuda.h"
#include "inject.h"
#include "scenarios.h"

using namespace bitexact_test;

namespace {

class FakeDevices : public testing::Test {
 protected:
  FakeDevices() {
    fake_cuda::machine() = {};
    fake_cuda::reset_thread();
  }

  // Ordinals are remembered by the library, so each test has its own.
  static int add(const fake_cuda::Device& device) {
    static std::vector<fake_cuda::Device> all(1);
    all.push_back(device);
    fake_cuda::machine().devices = all;
    return static_cast<int>(all.size()) - 1;
  }

  static int32_t create(int device, bitexact_context** context) {
    bitexact_context_options options = BITEXACT_CONTEXT_OPTIONS_INIT;
    options.device = device;
    return bitexact_context_create(&options, context);
  }
};

TEST_F(FakeDevices, EachWayToHaveNoGpuHasItsOwnStatusAndText) {
  struct Row {
    cudaError_t error;
    int driver_version;
    int32_t status;
  };
  const Row rows[] = {{cudaErrorNoDevice, 13000, BITEXACT_STATUS_NO_DEVICE},
                      {cudaErrorInsufficientDriver, 0, BITEXACT_STATUS_NO_DRIVER},
                      {cudaErrorInsufficientDriver, 12000, BITEXACT_STATUS_DRIVER_TOO_OLD},
                      {cudaErrorCallRequiresNewerDriver, 12000, BITEXACT_STATUS_DRIVER_TOO_OLD},
                      {cudaErrorSystemDriverMismatch, 13000, BITEXACT_STATUS_DRIVER_TOO_OLD},
                      {cudaErrorStubLibrary, 0, BITEXACT_STATUS_NO_DRIVER},
                      {cudaErrorSystemNotReady, 13000, BITEXACT_STATUS_NO_DRIVER},
                      {cudaErrorInitializationError, 13000, BITEXACT_STATUS_CUDA_ERROR},
                      {cudaErrorUnknown, 13000, BITEXACT_STATUS_CUDA_ERROR}};
  for (const Row& row : rows) {
    fake_cuda::machine().driver_version = row.driver_version;
    bitexact_context* context = nullptr;
    inject::arm(1, row.error);
    EXPECT_EQ(create(0, &context), row.status) << row.error;
    EXPECT_EQ(inject::failed(), "cudaGetDeviceCount");
    inject::disarm();
    EXPECT_EQ(context, nullptr);
    EXPECT_EQ(bitexact_last_cuda_error(), row.error);
    EXPECT_NE(std::string(bitexact_last_error()).find("counting devices"), std::string::npos);
    EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  }
}

TEST_F(FakeDevices, ADriverThatCannotTakeThePtxIsAnAnswerAndNotLatched) {
  for (const cudaError_t error : {cudaErrorUnsupportedPtxVersion, cudaErrorNoKernelImageForDevice,
                                  cudaErrorInvalidPtx, cudaErrorJitCompilationDisabled}) {
    // Fails each call of opening a device in turn, until it is one that loads a kernel.
    std::string failed;
    for (int64_t nth = 1; failed != "cudaFuncGetAttributes"; ++nth) {
      const int device = add({75, 80, 80, true});
      bitexact_context* context = nullptr;
      inject::arm(nth, error);
      const int32_t status = create(device, &context);
      inject::disarm();
      failed = inject::failed();
      ASSERT_NE(failed, "") << "no kernel is loaded";
      bitexact_context_destroy(context);
      if (failed != "cudaFuncGetAttributes") continue;
      EXPECT_EQ(status, error == cudaErrorUnsupportedPtxVersion ? BITEXACT_STATUS_DRIVER_TOO_OLD
                                                                : BITEXACT_STATUS_NO_KERNEL_IMAGE);
      EXPECT_EQ(create(device, &context), BITEXACT_STATUS_OK) << bitexact_last_error();
      bitexact_context_destroy(context);
    }
  }
}

TEST_F(FakeDevices, TheImageIsToldForEveryArchitecture) {
  struct Row {
    int architecture, binary, ptx;
    int32_t image, image_architecture;
  };
  // SASS serves its own architecture and later minors of its major; anything else is the PTX, finished by the
  // driver for the device.
  const Row rows[] = {{75, 0, 0, 0, 0},
                      {80, 80, 80, BITEXACT_IMAGE_SASS, 80},
                      {86, 86, 86, BITEXACT_IMAGE_SASS, 86},
                      {87, 86, 86, BITEXACT_IMAGE_SASS, 86},
                      {89, 89, 89, BITEXACT_IMAGE_SASS, 89},
                      {90, 90, 90, BITEXACT_IMAGE_SASS, 90},
                      {100, 100, 100, BITEXACT_IMAGE_SASS, 100},
                      {103, 103, 103, BITEXACT_IMAGE_SASS, 103},
                      {120, 120, 120, BITEXACT_IMAGE_SASS, 120},
                      {121, 120, 120, BITEXACT_IMAGE_SASS, 120},
                      {130, 130, 80, BITEXACT_IMAGE_PTX, 80}};
  for (const Row& row : rows) {
    const int device = add({row.architecture, row.binary, row.ptx, true});
    bitexact_context* raw = nullptr;
    const int32_t status = create(device, &raw);
    const Context context(raw);
    if (row.binary == 0) {
      EXPECT_EQ(status, BITEXACT_STATUS_NO_KERNEL_IMAGE) << row.architecture;
      continue;
    }
    ASSERT_EQ(status, BITEXACT_STATUS_OK) << bitexact_last_error();
    bitexact_context_info info = BITEXACT_CONTEXT_INFO_INIT;
    ASSERT_EQ(bitexact_context_get_info(raw, &info), BITEXACT_STATUS_OK);
    EXPECT_EQ(info.architecture, row.architecture);
    EXPECT_EQ(info.image, row.image) << row.architecture;
    EXPECT_EQ(info.image_architecture, row.image_architecture) << row.architecture;
    EXPECT_EQ(info.device, device);
  }
}

TEST_F(FakeDevices, VerdictsAndDevicesAreOfTheirContext) {
  const int old = add({80, 80, 80, false}), recent = add({90, 90, 90, true});
  const Context on_old = make_context(old), on_recent = make_context(recent);
  const Context same = make_context(recent);
  Calls calls;
  ASSERT_EQ(bitexact_fused_silu_mul(on_recent.get(), &calls.silu.params, nullptr), BITEXACT_STATUS_OK);
  EXPECT_TRUE(calls.silu.right());
  EXPECT_EQ(stories(on_recent.get()).size(), 1u);
  EXPECT_EQ(stories(on_old.get()).size(), 0u);
  EXPECT_EQ(stories(same.get()).size(), 0u);
  // Without memory pools the check takes other allocations, and leaves the current context alone all the same.
  const auto before = inject::thread_state();
  Calls others;
  ASSERT_EQ(bitexact_fused_silu_mul(on_old.get(), &others.silu.params, nullptr), BITEXACT_STATUS_OK);
  EXPECT_TRUE(others.silu.right());
  EXPECT_EQ(inject::thread_state().context, before.context);
}

// Nothing is checked, allocated or waited for, and no verdict falls, while the stream captures.
TEST_F(FakeDevices, AnUndecidedCallInACaptureEnqueuesOneLaunch) {
  Calls calls;
  const Context builtin = make_context(0);
  const Context caller = make_context(0, BITEXACT_POLICY_VERIFY, BITEXACT_REFERENCE_CALLER);
  fake_cuda::machine().capturing = true;
  std::vector<std::string> made;
  int64_t count = 0;
  for (int64_t nth = 1;; ++nth) {  // the names of the calls, one after the other
    inject::arm(nth, cudaErrorUnknown);
    const int32_t status = bitexact_fused_silu_mul(builtin.get(), &calls.silu.params, nullptr);
    count = inject::calls();
    inject::disarm();
    if (inject::failed().empty()) {
      EXPECT_EQ(status, BITEXACT_STATUS_OK);
      break;
    }
    made.push_back(inject::failed());
    fake_cuda::reset_thread();  // what a failing call left
  }
  EXPECT_EQ(made, (std::vector<std::string>{"cuCtxGetCurrent", "cuCtxPushCurrent", "cudaStreamIsCapturing",
                                            "cudaLaunchKernel", "cuCtxPopCurrent"}));
  EXPECT_EQ(count, 5);
  EXPECT_TRUE(calls.silu.right());
  EXPECT_EQ(only_story(builtin.get()).state, BITEXACT_STATE_UNDECIDED);

  EXPECT_EQ(bitexact_fused_silu_mul(caller.get(), &calls.silu.params, nullptr), BITEXACT_STATUS_CAPTURING);
  EXPECT_EQ(only_story(caller.get()).state, BITEXACT_STATE_UNDECIDED);
  EXPECT_EQ(bitexact_gate_warm_up(builtin.get(), nullptr, &calls.silu.params, nullptr),
            BITEXACT_STATUS_CAPTURING);
  fake_cuda::machine().capturing = false;
  EXPECT_EQ(bitexact_fused_silu_mul(builtin.get(), &calls.silu.params, nullptr), BITEXACT_STATUS_OK);
  EXPECT_EQ(only_story(builtin.get()).state, BITEXACT_STATE_ACCEPTED);
}

// A refusal and an empty call touch no CUDA at all; an accepted call is one launch and no allocation.
TEST_F(FakeDevices, WhatACallAsksOfCuda) {
  Calls calls;
  const Context context = make_context(0, BITEXACT_POLICY_TRUST);
  auto calls_of = [&](bitexact_silu_mul_params p, int32_t expected) {
    inject::arm(0, 0);
    EXPECT_EQ(bitexact_fused_silu_mul(context.get(), &p, nullptr), expected);
    return inject::calls();
  };
  bitexact_silu_mul_params p = calls.silu.params;
  EXPECT_EQ(calls_of(p, BITEXACT_STATUS_OK), 4);  // get, push, launch, pop
  p.rows = 0;
  p.gate = p.up = p.out = nullptr;
  EXPECT_EQ(calls_of(p, BITEXACT_STATUS_OK), 0);
  p.rows = -1;
  EXPECT_EQ(calls_of(p, BITEXACT_STATUS_INVALID_SHAPE), 0);
  inject::arm(0, 0);
  EXPECT_EQ(bitexact_fused_silu_mul_can_use(context.get(), &calls.silu.params), BITEXACT_STATUS_OK);
  EXPECT_EQ(inject::calls(), 0);
}

TEST_F(FakeDevices, AForkedChildIsToldSo) {
  // In the child alone: a count of forks is of the process.
  Calls calls;
  const Context context = make_context(0);
  const auto in_the_child = [&] {
    const int32_t status = bitexact_fused_silu_mul(context.get(), &calls.silu.params, nullptr);
    bitexact_context_info info = BITEXACT_CONTEXT_INFO_INIT;
    const bool told = status == BITEXACT_STATUS_FORKED &&
                      bitexact_context_get_info(context.get(), &info) == BITEXACT_STATUS_FORKED;
    bitexact_context_destroy(context.get());
    std::_Exit(told && calls.silu.untouched() ? 0 : 1);
  };
  EXPECT_EXIT(in_the_child(), testing::ExitedWithCode(0), "");
  EXPECT_EQ(bitexact_fused_silu_mul(context.get(), &calls.silu.params, nullptr), BITEXACT_STATUS_OK);
}

}  // namespace
