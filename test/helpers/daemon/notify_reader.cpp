// Stands in for systemd's notification socket, a Unix datagram socket, which Node cannot open:
// writes each message as one line to stdout.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>

int main(int argc, char** argv) {
  if (argc != 2) return 64;
  const std::string name = argv[1];
  const int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (fd < 0 || name.size() >= sizeof address.sun_path) return 70;
  std::memcpy(address.sun_path, name.data(), name.size());
  if (name[0] == '@') address.sun_path[0] = '\0';  // an abstract name
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address), length) != 0) return 70;
  std::puts("bound");
  std::fflush(stdout);
  char buffer[4096];
  for (ssize_t size; (size = recv(fd, buffer, sizeof buffer, 0)) >= 0;) {
    for (ssize_t i = 0; i < size; ++i) std::putchar(buffer[i] == '\n' ? '|' : buffer[i]);
    std::putchar('\n');
    std::fflush(stdout);
  }
  return 0;
}
