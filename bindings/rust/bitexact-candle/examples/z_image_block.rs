//! A transformer block of the Z-Image diffusion model, before and after: candle-transformers' own block, and
//! the same block with its rotations and its gated SiLU fused. Small, with seeded weights. The outputs are
//! compared byte by byte.
//!
//! ```text
//! cargo run --release --example z_image_block [-- --cuda]
//! ```
use std::time::{Duration, Instant};

use bitexact_candle::{fallbacks, reports, rope_qk, silu_mul, Numerics, RopeSpec};
use candle_core::{DType, Device, Result, Tensor, D};
use candle_nn::{linear, linear_no_bias, Linear, Module, RmsNorm, VarBuilder, VarMap};
use candle_transformers::models::z_image::transformer::{
    create_coordinate_grid, Config, RopeEmbedder, ZImageTransformerBlock,
};

fn config() -> Config {
    let mut config = Config::z_image_turbo();
    config.dim = 384;
    config.n_heads = 3;
    config.n_kv_heads = 3;
    config.set_use_accelerated_attn(false);
    config
}

/// candle-transformers' block, written out so that two places can be changed: see `fused`.
struct Block {
    q: Linear,
    k: Linear,
    v: Linear,
    out: Linear,
    norm_q: RmsNorm,
    norm_k: RmsNorm,
    w1: Linear,
    w2: Linear,
    w3: Linear,
    attention_norm1: RmsNorm,
    attention_norm2: RmsNorm,
    ffn_norm1: RmsNorm,
    ffn_norm2: RmsNorm,
    modulation: Linear,
    heads: usize,
    head_dim: usize,
}

impl Block {
    fn new(config: &Config, vb: VarBuilder) -> Result<Block> {
        let (dim, hidden, head_dim) = (config.dim, config.hidden_dim(), config.head_dim());
        let norm = |name: &str| candle_nn::rms_norm(dim, config.norm_eps, vb.pp(name));
        let head_norm = |name: &str| candle_nn::rms_norm(head_dim, 1e-5, vb.pp("attention").pp(name));
        let (attention, ffn) = (vb.pp("attention"), vb.pp("feed_forward"));
        Ok(Block {
            q: linear_no_bias(dim, dim, attention.pp("to_q"))?,
            k: linear_no_bias(dim, dim, attention.pp("to_k"))?,
            v: linear_no_bias(dim, dim, attention.pp("to_v"))?,
            out: linear_no_bias(dim, dim, attention.pp("to_out").pp("0"))?,
            norm_q: head_norm("norm_q")?,
            norm_k: head_norm("norm_k")?,
            w1: linear_no_bias(dim, hidden, ffn.pp("w1"))?,
            w2: linear_no_bias(hidden, dim, ffn.pp("w2"))?,
            w3: linear_no_bias(dim, hidden, ffn.pp("w3"))?,
            attention_norm1: norm("attention_norm1")?,
            attention_norm2: norm("attention_norm2")?,
            ffn_norm1: norm("ffn_norm1")?,
            ffn_norm2: norm("ffn_norm2")?,
            modulation: linear(dim.min(256), 4 * dim, vb.pp("adaLN_modulation").pp("0"))?,
            heads: config.n_heads,
            head_dim,
        })
    }

    fn attention(&self, x: &Tensor, cos: &Tensor, sin: &Tensor) -> Result<Tensor> {
        let (b, tokens, _) = x.dims3()?;
        let heads = |x: Tensor| x.reshape((b, tokens, self.heads, self.head_dim));
        let q = self.norm_q.forward(&heads(x.apply(&self.q)?)?)?;
        let k = self.norm_k.forward(&heads(x.apply(&self.k)?)?)?;
        let v = heads(x.apply(&self.v)?)?;
        // Fused: was apply_rotary_emb on q and on k, ten operators each.
        let (q, k) = rope_qk(&q, &k, cos, sin, &RopeSpec::interleaved().tokens_first())?;
        let to_heads_first = |x: &Tensor| x.transpose(1, 2)?.contiguous();
        let (q, k, v) = (to_heads_first(&q)?, to_heads_first(&k)?, to_heads_first(&v)?);
        let weights = (q.matmul(&k.transpose(2, 3)?)? * (1.0 / (self.head_dim as f64).sqrt()))?;
        let context = candle_nn::ops::softmax_last_dim(&weights)?.matmul(&v)?;
        context.transpose(1, 2)?.reshape((b, tokens, ()))?.apply(&self.out)
    }

    fn feed_forward(&self, x: &Tensor) -> Result<Tensor> {
        // Fused: was silu and mul.
        silu_mul(&x.apply(&self.w1)?, &x.apply(&self.w3)?, Numerics::Candle)?.apply(&self.w2)
    }

    fn forward(&self, x: &Tensor, cos: &Tensor, sin: &Tensor, conditioning: &Tensor) -> Result<Tensor> {
        let chunks = conditioning.apply(&self.modulation)?.unsqueeze(1)?.chunk(4, D::Minus1)?;
        let (gate_msa, gate_mlp) = (chunks[1].tanh()?, chunks[3].tanh()?);
        let (scale_msa, scale_mlp) = ((&chunks[0] + 1.0)?, (&chunks[2] + 1.0)?);
        let scaled = self.attention_norm1.forward(x)?.broadcast_mul(&scale_msa)?;
        let attention = self.attention_norm2.forward(&self.attention(&scaled, cos, sin)?)?;
        let x = (x + gate_msa.broadcast_mul(&attention)?)?;
        let scaled = self.ffn_norm1.forward(&x)?.broadcast_mul(&scale_mlp)?;
        let ffn = self.ffn_norm2.forward(&self.feed_forward(&scaled)?)?;
        x + gate_mlp.broadcast_mul(&ffn)?
    }
}

/// Values in (-scale, scale), the same for a seed on every machine.
fn seeded(seed: u64, shape: &[usize], scale: f32, dtype: DType, device: &Device) -> Result<Tensor> {
    let mut state = seed.wrapping_mul(0x2545_f491_4f6c_dd1d).wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        ((state >> 40) as f32 / 8_388_608.0 - 1.0) * scale
    };
    let values: Vec<f32> = (0..shape.iter().product()).map(|_| next()).collect();
    Tensor::from_vec(values, shape, device)?.to_dtype(dtype)
}

/// Gives every weight a value from its name.
fn fill(weights: &VarMap) -> Result<()> {
    let named = weights.data().lock().expect("no other thread");
    for (name, weight) in named.iter() {
        let seed = name.bytes().fold(7u64, |seed, byte| seed.wrapping_mul(31).wrapping_add(byte.into()));
        let scale = 1.0 / (*weight.dims().last().unwrap_or(&1) as f32).sqrt();
        weight.set(&seeded(seed, weight.dims(), scale, weight.dtype(), weight.device())?)?;
    }
    Ok(())
}

fn bytes(tensor: &Tensor) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    tensor.write_bytes(&mut bytes)?;
    Ok(bytes)
}

/// The last result and the best time of some runs.
fn timed(device: &Device, mut run: impl FnMut() -> Result<Tensor>) -> Result<(Tensor, Duration)> {
    let (mut result, mut best) = (run()?, Duration::MAX);
    for _ in 0..5 {
        device.synchronize()?;
        let start = Instant::now();
        result = run()?;
        device.synchronize()?;
        best = best.min(start.elapsed());
    }
    Ok((result, best))
}

fn main() -> Result<()> {
    let device = match std::env::args().nth(1).as_deref() {
        Some("--cuda") => Device::new_cuda(0)?,
        Some(other) => candle_core::bail!("unknown argument {other}; accepted: --cuda"),
        None => Device::Cpu,
    };
    let mut equal = true;
    for dtype in [DType::BF16, DType::F16, DType::F32] {
        let config = config();
        let weights = VarMap::new();
        let vb = VarBuilder::from_varmap(&weights, dtype, &device);
        let before = ZImageTransformerBlock::new(&config, true, vb.clone())?;
        let after = Block::new(&config, vb)?;
        fill(&weights)?;

        let (height, width) = (8, 8);
        let embedder =
            RopeEmbedder::new(config.rope_theta, config.axes_dims.clone(), vec![64, 64, 64], &device, dtype)?;
        let (cos, sin) =
            embedder.forward(&create_coordinate_grid((1, height, width), (0, 0, 0), &device)?)?;
        let x = seeded(1, &[1, height * width, config.dim], 1.0, dtype, &device)?;
        let conditioning = seeded(2, &[1, config.dim.min(256)], 1.0, dtype, &device)?;

        let (old, old_time) = timed(&device, || before.forward(&x, None, &cos, &sin, Some(&conditioning)))?;
        let (new, new_time) = timed(&device, || after.forward(&x, &cos, &sin, &conditioning))?;
        let (old, new) = (bytes(&old)?, bytes(&new)?);
        let differing = old.iter().zip(&new).filter(|(a, b)| a != b).count();
        println!(
            "{dtype:?}: {differing} of {} bytes differ, candle {old_time:.1?}, fused {new_time:.1?}",
            old.len()
        );
        equal &= old == new;
    }
    for report in reports(&device)?.iter().filter(|report| report.checks > 0) {
        println!("{}: {:?}, {} calls fused", report.kernel, report.verdict, report.fused_calls);
    }
    for fallback in fallbacks() {
        println!("chain of {}: {} x {}", fallback.operation, fallback.calls, fallback.reason);
    }
    if !equal {
        candle_core::bail!("the outputs differ");
    }
    Ok(())
}
