/** The outcomes of the examination of PUBLIC_URL, and their English sentences. The console has those of other languages. */

/**
 * `error`: LINE cannot deliver. `warning`: it may be able to. For example, many routers refuse connections from their own network to
 * their public address, and accept the same connections from the internet.
 */
export const REACHABILITY_SEVERITIES = {
  not_configured: 'warning',
  name_unresolved: 'error',
  no_response: 'warning',
  certificate_refused: 'error',
  other_program: 'error',
  reached: 'ok',
} as const

export type ReachabilityCode = keyof typeof REACHABILITY_SEVERITIES

/** @param detail the part of the sentence that varies: a host, a status or the code of a failure */
type ReachabilityTexts = Record<ReachabilityCode, (detail: string) => [message: string, fix: string]>

export const REACHABILITY_TEXTS: ReachabilityTexts = {
  not_configured: () => [
    'PUBLIC_URL is not set to an https:// address, which LINE requires.',
    'Set it to one; docs/first-account.md shows three ways to get one.',
  ],
  name_unresolved: (host) => [
    `The name servers of this machine return no address for ${host}.`,
    'Add a DNS record for the name, or correct PUBLIC_URL.',
  ],
  no_response: (reason) => [
    `Nothing responds at PUBLIC_URL (${reason}).`,
    'Start the proxy and this service, and open the port in the firewall. Then let LINE test it, because some routers refuse only their own network.',
  ],
  certificate_refused: (reason) => [
    `The server at PUBLIC_URL has no certificate that LINE accepts (${reason}).`,
    'Configure https with a valid certificate of a public authority for this name, and its whole chain (fullchain.pem).',
  ],
  other_program: (status) => [
    `The response at PUBLIC_URL does not come from this service (${status}).`,
    'Let the proxy or tunnel forward to HOST and PORT of this service, without a redirect, a login or the path of PUBLIC_URL.',
  ],
  reached: () => [
    'This machine reaches the service at PUBLIC_URL.',
    'Verify an account with a test delivery, because only LINE can prove that LINE reaches it.',
  ],
}
