/** A secret that the service shows only now. */
import { useLocalized } from '../texts.ts'
import { Copyable } from './values.tsx'

export function SecretOnce({ label, secret }: { label: string; secret: string }) {
  const { t } = useLocalized()
  return (
    <>
      <p class="notice warning">{t.clients.secretOnce}</p>
      <h3>{label}</h3>
      <Copyable text={secret} label={label} />
    </>
  )
}
