//! On a CUDA device: the same calls as on the host, byte by byte, on every kind of stream and in a graph.
//!
//! ```text
//! cargo test --features dlopen --test gpu -- --ignored
//! ```
//! Needs a device and a libbitexact with CUDA; fails without. The driver is loaded at run time, and only the
//! few functions named below are used.
#![cfg(all(feature = "link", feature = "dlopen", unix))]
use std::ffi::{c_void, CString};
use std::ptr::null_mut;

use bitexact::{
    sys, Answer, Context, DType, Device, Host, Library, Memory, Options, Pairing, Reference, Rope, Silu,
    SiluMul, SiluMulReference, Stream, TableWidth, Verdict, View, ViewMut,
};

macro_rules! driver {
    ($($name:ident: $symbol:literal ($($argument:ty),*);)*) => {
        /// Functions of the CUDA driver.
        struct Driver {
            $($name: unsafe extern "C" fn($($argument),*) -> i32,)*
        }

        impl Driver {
            fn load() -> Driver {
                // SAFETY: libcuda is the driver's own library, and these are the types of its functions.
                unsafe {
                    let library = sys::loader::dlopen(c"libcuda.so.1".as_ptr(), sys::loader::RTLD_NOW);
                    assert!(!library.is_null(), "this test needs a CUDA driver");
                    Driver {
                        $($name: {
                            let symbol = CString::new($symbol).unwrap();
                            let address = sys::loader::dlsym(library, symbol.as_ptr());
                            assert!(!address.is_null(), $symbol);
                            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) -> i32>(address)
                        },)*
                    }
                }
            }
        }
    };
}

type Handle = *mut c_void;

driver! {
    init: "cuInit" (u32);
    primary_context: "cuDevicePrimaryCtxRetain" (*mut Handle, i32);
    set_context: "cuCtxSetCurrent" (Handle);
    synchronize: "cuCtxSynchronize" ();
    allocate: "cuMemAlloc_v2" (*mut u64, usize);
    upload: "cuMemcpyHtoD_v2" (u64, *const c_void, usize);
    upload_async: "cuMemcpyHtoDAsync_v2" (u64, *const c_void, usize, Handle);
    download: "cuMemcpyDtoH_v2" (*mut c_void, u64, usize);
    fill: "cuMemsetD8_v2" (u64, u8, usize);
    create_stream: "cuStreamCreate" (*mut Handle, u32);
    wait: "cuStreamSynchronize" (Handle);
    begin_capture: "cuStreamBeginCapture_v2" (Handle, i32);
    end_capture: "cuStreamEndCapture" (Handle, *mut Handle);
    nodes: "cuGraphGetNodes" (Handle, *mut Handle, *mut usize);
    instantiate: "cuGraphInstantiateWithFlags" (*mut Handle, Handle, u64);
    launch_graph: "cuGraphLaunch" (Handle, Handle);
}

macro_rules! cuda {
    ($driver:expr, $name:ident($($argument:expr),*)) => {
        // SAFETY: live handles and buffers of the sizes given.
        assert_eq!(unsafe { ($driver.$name)($($argument),*) }, 0, stringify!($name))
    };
}

/// The driver with the primary context of device 0 on this thread.
struct Gpu {
    driver: Driver,
    context: Handle,
}

impl Gpu {
    fn open() -> Gpu {
        let driver = Driver::load();
        let mut context = null_mut();
        cuda!(driver, init(0));
        cuda!(driver, primary_context(&mut context, 0));
        cuda!(driver, set_context(context));
        Gpu { driver, context }
    }

    fn upload(&self, values: &[u16], offset: usize) -> Buffer {
        let mut address = 0;
        let len = values.len() + offset;
        cuda!(self.driver, allocate(&mut address, 2 * len.max(1)));
        cuda!(self.driver, upload(address + 2 * offset as u64, values.as_ptr().cast(), 2 * values.len()));
        Buffer { address, len, offset }
    }

    fn download(&self, buffer: &Buffer) -> Vec<u16> {
        let mut values = vec![0u16; buffer.len - buffer.offset];
        let from = buffer.address + 2 * buffer.offset as u64;
        cuda!(self.driver, download(values.as_mut_ptr().cast(), from, 2 * values.len()));
        values
    }

    fn synchronize(&self) {
        cuda!(self.driver, synchronize());
    }

    fn stream(&self) -> Handle {
        let (mut stream, non_blocking) = (null_mut(), 1);
        cuda!(self.driver, create_stream(&mut stream, non_blocking));
        stream
    }
}

/// Device memory; never freed, as the process ends soon.
struct Buffer {
    address: u64,
    len: usize,
    offset: usize,
}

fn strides(shape: &[usize]) -> Vec<isize> {
    (0..shape.len()).map(|axis| shape[axis + 1..].iter().product::<usize>() as isize).collect()
}

impl Buffer {
    fn view<'a>(&self, dtype: DType, shape: &[usize]) -> View<'a, Device> {
        let base = self.address as *const c_void;
        // SAFETY: the buffer is never freed, and the tests wait before they touch it.
        unsafe { View::from_raw(base, self.len, dtype, self.offset, shape, &strides(shape)) }.unwrap()
    }

    fn view_mut<'a>(&self, dtype: DType, shape: &[usize]) -> ViewMut<'a, Device> {
        let base = self.address as *mut c_void;
        // SAFETY: as above.
        unsafe { ViewMut::from_raw(base, self.len, dtype, self.offset, shape, &strides(shape)) }.unwrap()
    }
}

fn on_host<'a>(values: &[u16], dtype: DType, shape: &[usize]) -> View<'a, Host> {
    // SAFETY: the tests keep `values` until the call is over.
    unsafe { View::from_raw(values.as_ptr().cast(), values.len(), dtype, 0, shape, &strides(shape)) }.unwrap()
}

fn on_host_mut<'a>(values: &mut [u16], dtype: DType, shape: &[usize]) -> ViewMut<'a, Host> {
    let base = values.as_mut_ptr().cast();
    // SAFETY: as above, and nothing else uses them.
    unsafe { ViewMut::from_raw(base, values.len(), dtype, 0, shape, &strides(shape)) }.unwrap()
}

/// Every bit pattern turns up, NaN and subnormals included.
fn mixed(seed: u64, count: usize) -> Vec<u16> {
    let mut state = seed.wrapping_mul(0x2545_f491_4f6c_dd1d) | 1;
    (0..count)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as u16
        })
        .collect()
}

fn device() -> Context<Device> {
    Library::linked().unwrap().device_context(0, Options::default()).expect("this test needs a CUDA device")
}

fn host() -> Context<Host> {
    Library::linked().unwrap().host_context(Options::default()).unwrap()
}

const SHAPE: [usize; 3] = [2, 33, 1000];

fn silu_mul<'a, M: Memory>(
    gate: View<'a, M>,
    up: View<'a, M>,
    out: ViewMut<'a, M>,
    silu: Silu,
) -> SiluMul<'a, M> {
    SiluMul::new(gate, up, out).unwrap().silu(silu)
}

#[test]
#[ignore = "needs a CUDA device"]
fn silu_mul_is_the_hosts() {
    let (gpu, device, host) = (Gpu::open(), device(), host());
    let every: Vec<u16> = (0..=u16::MAX).chain(mixed(1, 66_000 - 65_536)).collect();
    for dtype in [DType::Bf16, DType::F16] {
        for silu in [Silu::Aten, Silu::Sigmoid, Silu::Candle, Silu::Glu] {
            // Offsets of whole vectors, and of single elements.
            for offset in [0, 1, 8] {
                let up = mixed(2 + offset as u64, every.len());
                let mut expected = vec![0; every.len()];
                let mut call = silu_mul(
                    on_host(&every, dtype, &SHAPE),
                    on_host(&up, dtype, &SHAPE),
                    on_host_mut(&mut expected, dtype, &SHAPE),
                    silu,
                );
                assert_eq!(host.silu_mul(&mut call).unwrap(), Answer::Served);
                let (gate, up) = (gpu.upload(&every, offset), gpu.upload(&up, offset));
                let out = gpu.upload(&vec![0; every.len()], offset);
                let mut call = silu_mul(
                    gate.view(dtype, &SHAPE),
                    up.view(dtype, &SHAPE),
                    out.view_mut(dtype, &SHAPE),
                    silu,
                );
                // The first call is checked against the built-in reference, the second is not.
                for _ in 0..2 {
                    cuda!(gpu.driver, fill(out.address, 0x55, 2 * out.len));
                    // SAFETY: the buffers live, and the test waits before it reads.
                    let answer = unsafe { device.silu_mul(&mut call, Stream::LEGACY) };
                    assert_eq!(answer.unwrap(), Answer::Served);
                    gpu.synchronize();
                    assert!(gpu.download(&out) == expected, "{dtype:?} {silu:?} offset {offset}");
                }
            }
        }
    }
    let reports = device.reports().unwrap();
    let used: Vec<_> = reports.iter().filter(|report| report.fused_calls > 0).collect();
    assert!(used.len() >= 6 && used.iter().all(|report| report.verdict == Verdict::Accepted));
    assert!(reports.iter().all(|report| report.verdict != Verdict::Declined), "{reports:?}");
}

fn rope<'a, M: Memory>(
    q: View<'a, M>,
    out: ViewMut<'a, M>,
    k: ViewMut<'a, M>,
    cos: View<'a, M>,
    sin: View<'a, M>,
) -> Rope<'a, M> {
    Rope::new((q, out), cos, sin, TableWidth::Half).unwrap().with_k(k).unwrap()
}

#[test]
#[ignore = "needs a CUDA device"]
fn rope_is_the_hosts() {
    let (gpu, device, host) = (Gpu::open(), device(), host());
    for (round, (q_heads, k_heads, head_dim, rotary)) in
        [(4, 2, 64, 64), (3, 1, 72, 40), (2, 5, 6, 2)].into_iter().enumerate()
    {
        let (q_shape, k_shape, table) =
            ([2, 17, q_heads, head_dim], [2, 17, k_heads, head_dim], [17, rotary / 2]);
        let count = |shape: &[usize]| shape.iter().product::<usize>();
        for dtype in [DType::Bf16, DType::F16] {
            for pairing in [Pairing::Half, Pairing::Interleaved] {
                for offset in [0, 3] {
                    let seed = (round * 100 + offset) as u64;
                    let (q, k) = (mixed(seed, count(&q_shape)), mixed(seed + 1, count(&k_shape)));
                    let (cos, sin) = (mixed(seed + 2, count(&table)), mixed(seed + 3, count(&table)));
                    let (mut q_expected, mut k_expected) = (vec![0; q.len()], k.clone());
                    let mut call = rope(
                        on_host(&q, dtype, &q_shape),
                        on_host_mut(&mut q_expected, dtype, &q_shape),
                        on_host_mut(&mut k_expected, dtype, &k_shape),
                        on_host(&cos, dtype, &table),
                        on_host(&sin, dtype, &table),
                    )
                    .pairing(pairing);
                    assert_eq!(host.rope(&mut call).unwrap(), Answer::Served);

                    let (q_in, q_out) = (gpu.upload(&q, offset), gpu.upload(&vec![0; q.len()], offset));
                    let (cos, sin) = (gpu.upload(&cos, offset), gpu.upload(&sin, offset));
                    for _ in 0..2 {
                        let k_inout = gpu.upload(&k, offset);
                        let mut call = rope(
                            q_in.view(dtype, &q_shape),
                            q_out.view_mut(dtype, &q_shape),
                            k_inout.view_mut(dtype, &k_shape),
                            cos.view(dtype, &table),
                            sin.view(dtype, &table),
                        )
                        .pairing(pairing);
                        // SAFETY: the buffers live, and the test waits before it reads.
                        let answer = unsafe { device.rope(&mut call, Stream::LEGACY) };
                        assert_eq!(answer.unwrap(), Answer::Served);
                        gpu.synchronize();
                        let what = format!("{q_shape:?} {dtype:?} {pairing:?} offset {offset}");
                        assert!(gpu.download(&q_out) == q_expected, "q of {what}");
                        assert!(gpu.download(&k_inout) == k_expected, "k of {what}");
                    }
                }
            }
        }
    }
    assert!(device.reports().unwrap().iter().all(|report| report.verdict != Verdict::Declined));
}

/// The expected product of `mixed(gate)` and `mixed(up)`.
fn expected(gate: &[u16], up: &[u16]) -> Vec<u16> {
    let mut out = vec![0; gate.len()];
    let shape = [gate.len()];
    let output = on_host_mut(&mut out, DType::Bf16, &shape);
    let mut call =
        silu_mul(on_host(gate, DType::Bf16, &shape), on_host(up, DType::Bf16, &shape), output, Silu::Aten);
    assert_eq!(host().silu_mul(&mut call).unwrap(), Answer::Served);
    out
}

const LARGE: usize = 1 << 22;

#[test]
#[ignore = "needs a CUDA device"]
fn work_is_ordered_on_every_kind_of_stream() {
    let gpu = Gpu::open();
    let device = device();
    let (gate, up) = (mixed(1, LARGE), mixed(2, LARGE));
    let right = expected(&gate, &up);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (gate, up, right, device) = (&gate, &up, &right, &device);
            scope.spawn(move || {
                let gpu = Gpu::open();
                let created = gpu.stream();
                // SAFETY: the stream is never destroyed.
                let created = unsafe { Stream::from_raw(created) };
                for stream in [Stream::LEGACY, Stream::PER_THREAD, created] {
                    let (a, b) = (gpu.upload(&vec![0; LARGE], 0), gpu.upload(up, 0));
                    let out = gpu.upload(&vec![0; LARGE], 0);
                    // The call must wait for this copy, and the check for the call; no host waits between.
                    let raw = stream.as_raw();
                    cuda!(gpu.driver, upload_async(a.address, gate.as_ptr().cast(), 2 * LARGE, raw));
                    let mut call = silu_mul(
                        a.view(DType::Bf16, &[LARGE]),
                        b.view(DType::Bf16, &[LARGE]),
                        out.view_mut(DType::Bf16, &[LARGE]),
                        Silu::Aten,
                    );
                    // SAFETY: the buffers live, and the test waits before it reads.
                    let answer = unsafe { device.silu_mul(&mut call, stream) };
                    assert_eq!(answer.unwrap(), Answer::Served);
                    cuda!(gpu.driver, wait(raw));
                    assert!(gpu.download(&out) == *right, "thread {thread}, stream {raw:?}");
                }
            });
        }
    });
    cuda!(gpu.driver, set_context(gpu.context));
}

#[test]
#[ignore = "needs a CUDA device"]
fn a_captured_call_is_one_node_and_replays_on_new_inputs() {
    let (gpu, device) = (Gpu::open(), device());
    let stream = gpu.stream();
    let count = 70_000;
    let shape = [count];
    let (gate, up) = (gpu.upload(&mixed(1, count), 0), gpu.upload(&mixed(2, count), 0));
    let out = gpu.upload(&vec![0; count], 0);
    let mut call = silu_mul(
        gate.view(DType::Bf16, &shape),
        up.view(DType::Bf16, &shape),
        out.view_mut(DType::Bf16, &shape),
        Silu::Aten,
    );
    // SAFETY: the stream is never destroyed.
    let safe_stream = unsafe { Stream::from_raw(stream) };
    assert_eq!(device.warm_up(None, Some(&call), safe_stream).unwrap(), Answer::Served);
    let (mut graph, mut executable, mut nodes) = (null_mut(), null_mut(), 0);
    let thread_local = 1;
    cuda!(gpu.driver, begin_capture(stream, thread_local));
    // SAFETY: the buffers live, and the test waits before it reads.
    let answer = unsafe { device.silu_mul(&mut call, safe_stream) };
    cuda!(gpu.driver, end_capture(stream, &mut graph));
    assert_eq!(answer.unwrap(), Answer::Served);
    cuda!(gpu.driver, nodes(graph, null_mut(), &mut nodes));
    assert_eq!(nodes, 1);
    cuda!(gpu.driver, instantiate(&mut executable, graph, 0));
    for seed in 10..13 {
        let (a, b) = (mixed(seed, count), mixed(seed + 100, count));
        cuda!(gpu.driver, upload(gate.address, a.as_ptr().cast(), 2 * count));
        cuda!(gpu.driver, upload(up.address, b.as_ptr().cast(), 2 * count));
        cuda!(gpu.driver, launch_graph(executable, stream));
        cuda!(gpu.driver, wait(stream));
        assert!(gpu.download(&out) == expected(&a, &b), "replay {seed}");
    }
}

#[test]
#[ignore = "needs a CUDA device"]
fn in_callers_mode_a_capture_is_answered_and_the_callers_result_decides() {
    let gpu = Gpu::open();
    let options = Options { reference: Reference::Caller, ..Options::default() };
    let device =
        Library::linked().unwrap().device_context(0, options).expect("this test needs a CUDA device");
    let stream = gpu.stream();
    // SAFETY: the stream is never destroyed.
    let safe_stream = unsafe { Stream::from_raw(stream) };
    let (a, b) = (mixed(5, 4096), mixed(6, 4096));
    let (gate, up, out) = (gpu.upload(&a, 0), gpu.upload(&b, 0), gpu.upload(&vec![0; 4096], 0));
    let reference = gpu.upload(&expected(&a, &b), 0);
    let view = |buffer: &Buffer| buffer.view(DType::Bf16, &[4096]);
    let mut call = silu_mul(view(&gate), view(&up), out.view_mut(DType::Bf16, &[4096]), Silu::Aten);
    let mut graph = null_mut();
    cuda!(gpu.driver, begin_capture(stream, 1));
    // SAFETY: the buffers live, and nothing touches them meanwhile.
    let captured = unsafe { device.silu_mul(&mut call, safe_stream) };
    cuda!(gpu.driver, end_capture(stream, &mut graph));
    assert!(matches!(captured, Ok(Answer::Capturing | Answer::Unverified)), "{captured:?}");
    // SAFETY: as above.
    unsafe {
        assert_eq!(device.silu_mul(&mut call, safe_stream).unwrap(), Answer::Unverified);
        let reference = SiluMulReference { out: view(&reference) };
        assert_eq!(device.silu_mul_verify(&call, &reference, safe_stream).unwrap(), Verdict::Accepted);
        assert_eq!(device.silu_mul(&mut call, safe_stream).unwrap(), Answer::Served);
    }
    cuda!(gpu.driver, wait(stream));
    assert!(gpu.download(&out) == expected(&a, &b));
    assert_eq!(device.info().unwrap().device, Some(0));
}
