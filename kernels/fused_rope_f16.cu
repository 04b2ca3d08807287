#include "fused_rope.cuh"

namespace bitexact {
template RopeEntry rope_entry_of<f16>(const RopeArgs&, RopeVariant);
}
