/** URLs of this service that an operator enters on other platforms. */
import type { Config } from '../config/config.ts'
import { localUrl } from '../http/listen.ts'
import { deliveryPaths } from '../intake/line/line-signature.ts'
import { callbackPath } from '../intake/mbox/mbox-source.ts'

export interface Addresses {
  /** for the LINE Developers Console */
  webhookUrl: string
  /** for the support chat */
  callbackUrl: string
}

export type AddressConfig = Pick<Config, 'publicUrl' | 'host' | 'port'>

/** Returns PUBLIC_URL, or else the URL at which the service listens. */
export function baseUrl({ publicUrl, host, port }: AddressConfig): string {
  return publicUrl ?? localUrl(host, port)
}

export function addressesOf(config: AddressConfig, id: bigint, oaHash: string): Addresses {
  const base = baseUrl(config)
  const [webhookPath = ''] = deliveryPaths(String(id))
  return { webhookUrl: base + webhookPath, callbackUrl: base + callbackPath(oaHash) }
}
