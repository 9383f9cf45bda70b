#pragma once

#include <string>

namespace quire {

// Tells systemd (Type=notify) about the state: "READY=1", "STOPPING=1". One datagram to $NOTIFY_SOCKET as sd_notify(3)
// describes it; without that variable nothing happens.
void NotifySystemd(const std::string& state);

}  // namespace quire
