#include "fused_rope.cuh"

namespace bitexact {
template const void* rope_entry_of<bf16>(const RopeArgs&, RopeVariant);
}
