#include "fused_rope.cuh"

namespace bitexact {
template RopeEntry rope_entry_of<float>(const RopeArgs&, RopeVariant);
}
