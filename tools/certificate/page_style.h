// The fixed texts of the page.
#pragma once

namespace bitexact_certificate {

constexpr char page_style[] = R"(
:root{color-scheme:light dark;--bg:#fcfcfb;--fg:#1c1e21;--soft:#666b73;--line:#dcdfe3;--card:#f2f3f4;
--equal:#3f9d63;--differs:#d6322d;--blank:#d9dce0;--pass:#1f7a45;--fail:#b3211d;--open:#8a5a00}
@media(prefers-color-scheme:dark){:root{--bg:#15171a;--fg:#e6e8ea;--soft:#9aa1aa;--line:#30353b;--card:#1e2226;
--equal:#3c9a62;--differs:#ff5a52;--blank:#343a41;--pass:#1c6b3e;--fail:#a2211d;--open:#7a5100}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--fg);font:15px/1.5 system-ui,sans-serif}
header{color:#fff;padding:28px max(24px,calc(50vw - 676px))}
header.pass{background:var(--pass)}header.fail{background:var(--fail)}header.open{background:var(--open)}
h1{margin:0;font-size:30px;line-height:1.2}header p{margin:6px 0 0;opacity:.9}
main{max-width:1400px;margin:0 auto;padding:24px}
h2{margin:36px 0 12px;font-size:21px}
.numbers{display:grid;grid-template-columns:repeat(auto-fill,minmax(220px,1fr));gap:12px}
.number{background:var(--card);border-radius:8px;padding:12px 14px;color:var(--soft);font-size:13px}
.number b{display:block;font-size:20px;color:var(--fg);font-variant-numeric:tabular-nums}
.number.bad b,.bad{color:var(--differs)}
dl{display:grid;grid-template-columns:max-content 1fr;gap:4px 20px;margin:24px 0}
dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}
.figures{display:grid;grid-template-columns:repeat(auto-fill,minmax(300px,1fr));gap:20px;max-width:1160px}
figure{margin:0;max-width:380px}figcaption{font-size:13px;color:var(--soft)}figcaption b{color:var(--fg)}
svg{width:100%;height:auto;display:block}svg text{fill:var(--soft);font:10px system-ui,sans-serif}
rect.equal{fill:var(--equal)}rect.differs{fill:var(--differs)}rect.blank{fill:var(--blank)}
.wide{overflow-x:auto;margin-top:16px}
table{border-collapse:collapse;font-size:13px;width:100%}
th{text-align:left;color:var(--soft);font-weight:600}
th,td{padding:5px 10px 5px 0;border-bottom:1px solid var(--line);vertical-align:middle}
td.n{font-variant-numeric:tabular-nums;text-align:right;padding-right:18px}td,th{white-space:nowrap}
code{font:12px ui-monospace,monospace}
i{display:inline-block;width:13px;height:13px;margin-right:3px;border-radius:3px;border:3px solid;font:bold 9px/8px
sans-serif;text-align:center;vertical-align:middle;color:#fff}
i.equal{background:var(--equal);border-color:var(--equal)}i.differs{background:var(--differs);border-color:var(--differs)}
i.blank{background:var(--blank);border-color:var(--blank)}i.part.equal,i.part.blank{background:none}
.legend{color:var(--soft);max-width:900px;overflow-wrap:anywhere}.legend b{color:var(--fg)}
@media print{header{print-color-adjust:exact}}
)";

constexpr char page_legend[] = R"(<h2>How to read this</h2><p class='legend'>Each kernel below was run on this
device through its ordinary launch path, and each output compared with the library's own reference, which shares no
code with it: as integers, so that one bit is a difference. Where a domain is small enough, <b>every input that
there is</b> was swept: in fused_silu_mul every pair of 16-bit numbers or every float32 gate, in fused_rope with
16-bit tables every product and every sum. The maps show these sweeps, a tile for 2<sup>22</sup> inputs, in the order
of the number line. What is too large was sampled, RoPE's four numbers at once among it: random numbers, subnormals,
infinities, NaN, ties, cancellations. Where PyTorch's own result over a whole domain was captured on a GPU, the
kernel has to have its digest.</p><p class='legend'><i class='equal'></i>equal, with whole domains &nbsp;
<i class='equal part'></i>equal, sampled &nbsp; <i class='differs'>&times;</i>differs &nbsp;
<i class='blank'></i>not swept to the end, or not on this device. The squares of a row are the kernels of one
numerics: scalar and vector, half and interleaved; their names show on pointing. A page whose heading does not say
<b>certified</b> proves nothing.</p>)";

}  // namespace bitexact_certificate
