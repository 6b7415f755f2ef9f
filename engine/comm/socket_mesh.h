// A TCP connection between every two ranks.
#pragma once
#include <vector>

#include "engine/comm/control.h"
#include "engine/comm/socket.h"

namespace sluice::comm {

// By rank; the own place is empty. Collective, on Topic::connect. Error(peer): a rank cannot be reached, or has failed.
std::vector<Socket> connect_mesh(Control& control);

}  // namespace sluice::comm
