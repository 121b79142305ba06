/** What can be wrong with PUBLIC_URL, as seen from this machine, and the English sentences. The console has those of other languages. */

/**
 * `error`: LINE cannot deliver. `warning`: it may be able to. For example, many routers refuse connections from their own network to
 * their public address, and accept the same connections from the internet.
 */
export const REACHABILITY_SEVERITIES = {
  url_unset: 'warning',
  url_not_https: 'error',
  url_too_long: 'error',
  url_other_port: 'warning',
  name_unresolved: 'error',
  name_private: 'warning',
  address_private: 'error',
  not_connected: 'warning',
  tls_failed: 'error',
  certificate_untrusted: 'error',
  certificate_incomplete: 'error',
  certificate_wrong_name: 'error',
  certificate_expired: 'error',
  certificate_not_yet_valid: 'error',
  certificate_expires_soon: 'warning',
  no_response: 'error',
  redirected: 'error',
  login_required: 'error',
  web_page: 'error',
  service_unavailable: 'error',
  path_unknown: 'error',
  console_reached: 'error',
  metrics_reached: 'error',
  other_service: 'error',
  reached: 'ok',
} as const

export type ReachabilityCode = keyof typeof REACHABILITY_SEVERITIES

/** @param detail the part of the sentence that varies, such as a host, a status or a date */
export type ReachabilityTexts = Record<ReachabilityCode, (detail: string) => [message: string, fix: string]>

export const REACHABILITY_TEXTS: ReachabilityTexts = {
  url_unset: () => [
    'PUBLIC_URL is not set, so webhook URLs are incomplete, and a verification compares only their paths.',
    'Set it to an https:// address; docs/first-account.md shows three ways to get one.',
  ],
  url_not_https: () => [
    'PUBLIC_URL does not begin with https://, which LINE requires.',
    'Terminate TLS in a proxy or a tunnel, and set PUBLIC_URL to its https:// address.',
  ],
  url_too_long: (limit) => [
    `The webhook URL would be longer than the ${limit} characters that LINE accepts.`,
    'Set PUBLIC_URL to a shorter address.',
  ],
  url_other_port: (port) => [
    `PUBLIC_URL has port ${port}. LINE does not document to which ports it delivers.`,
    'Serve https on port 443, unless a test delivery of LINE succeeds.',
  ],
  name_unresolved: (host) => [
    `The name servers of this machine return no address for ${host}.`,
    'Add a DNS record for the name, or correct PUBLIC_URL.',
  ],
  name_private: (address) => [
    `The host of PUBLIC_URL resolves to ${address} here, which is not a public address.`,
    'Check that public DNS returns a public address only.',
  ],
  address_private: (address) => [
    `The address ${address} in PUBLIC_URL is not public, so LINE cannot reach it.`,
    'Set PUBLIC_URL to a name with a public address.',
  ],
  not_connected: (reason) => [
    `This machine cannot connect to PUBLIC_URL (${reason}).`,
    'Open the port in the firewall and start the proxy; if both are done, let LINE test it, because some routers refuse only their own network.',
  ],
  tls_failed: (reason) => [
    `The server at PUBLIC_URL does not complete a TLS 1.2 or 1.3 handshake (${reason}).`,
    'Configure https with a certificate on this port of the proxy.',
  ],
  certificate_untrusted: () => [
    'The certificate of PUBLIC_URL is self-signed or of a private authority, which LINE refuses.',
    "Use a certificate of a public authority, such as Let's Encrypt.",
  ],
  certificate_incomplete: () => [
    'The server at PUBLIC_URL does not send an intermediate certificate, or no public authority issued its certificate.',
    'Configure the whole chain, which is often named fullchain.pem.',
  ],
  certificate_wrong_name: (host) => [
    `The certificate of PUBLIC_URL is not for ${host}.`,
    'Request a certificate for this name, or set PUBLIC_URL to the name in the certificate.',
  ],
  certificate_expired: () => [
    'The certificate of PUBLIC_URL has expired.',
    'Renew the certificate, and reload the proxy.',
  ],
  certificate_not_yet_valid: () => [
    'The certificate of PUBLIC_URL is not valid yet.',
    'Check the clock of this machine, and use a certificate that is valid now.',
  ],
  certificate_expires_soon: (date) => [
    `The certificate of PUBLIC_URL expires on ${date} (UTC).`,
    'Check why it is not renewed automatically.',
  ],
  no_response: (reason) => [
    `The server at PUBLIC_URL accepts connections, but sends no complete response (${reason}).`,
    'Check that the proxy forwards to HOST and PORT of this service.',
  ],
  redirected: (target) => [
    `PUBLIC_URL redirects to ${target}, and LINE counts a redirect as an error.`,
    'Set PUBLIC_URL to the final address, or exempt the paths of this service from the login of the proxy.',
  ],
  login_required: (status) => [
    `The proxy or tunnel at PUBLIC_URL requires a login (status ${status}).`,
    'Exempt the paths of this service from the login.',
  ],
  web_page: () => [
    'A web page responds at PUBLIC_URL instead of this service, such as the login or warning page of a tunnel.',
    'Turn the page off, and point the proxy or tunnel at HOST and PORT of this service.',
  ],
  service_unavailable: (status) => [
    `The proxy or tunnel at PUBLIC_URL does not reach this service (status ${status}).`,
    'Start the service, and check that the proxy forwards to its HOST and PORT.',
  ],
  path_unknown: (path) => [
    `This service responds at PUBLIC_URL, but does not have the path ${path}.`,
    'Remove the path from PUBLIC_URL, or let the proxy remove it from requests.',
  ],
  console_reached: () => [
    'PUBLIC_URL leads to the console, which should not be public.',
    'Let the proxy forward to PORT instead of CONSOLE_PORT.',
  ],
  metrics_reached: () => [
    'PUBLIC_URL leads to the metrics, which should not be public.',
    'Let the proxy forward to PORT instead of METRICS_PORT.',
  ],
  other_service: (status) => [
    `Another service, or a tunnel that is offline, responds at PUBLIC_URL (status ${status}).`,
    'Point the proxy or tunnel at HOST and PORT of this service, or correct PUBLIC_URL.',
  ],
  reached: () => [
    'This machine reaches the service at PUBLIC_URL.',
    'Verify an account with a test delivery, because only LINE can prove that LINE reaches it.',
  ],
}
