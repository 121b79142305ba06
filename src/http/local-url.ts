/** The URL at which this machine reaches a server that listens on HOST and PORT. */
export function localUrl(host: string, port: number): string {
  // A server that listens on every interface is reached on the loopback interface. `::` also accepts IPv4, and ::1 may be disabled.
  const name = host === '0.0.0.0' || host === '::' ? '127.0.0.1' : host
  return `http://${name.includes(':') ? `[${name}]` : name}:${port}`
}
