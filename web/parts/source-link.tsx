/** Makes a link that says where a follower came from, and its QR code. Nothing is stored. */
import { sourceLink } from '../../src/audience/source-link.ts'
import { useLocalized } from '../texts.ts'
import { CloseFooter, Dialog, DialogButton } from './dialog.tsx'
import { TextField, useFields } from './form.tsx'
import { Copyable } from './values.tsx'

export function SourceLinkButton() {
  const { t } = useLocalized()
  return <DialogButton label={t.sourceLink.make}>{(close) => <LinkDialog onClose={close} />}</DialogButton>
}

function LinkDialog({ onClose }: { onClose: () => void }) {
  const { t } = useLocalized()
  const { values, field } = useFields({ page: '', source: '', campaign: '' })
  const source = values.source.trim()
  const made = source && sourceLink({ page: values.page, source, campaign: values.campaign.trim() })
  return (
    <Dialog title={t.sourceLink.title} onClose={onClose}>
      <p>{t.sourceLink.text}</p>
      <TextField
        {...field('page')}
        type="url"
        label={t.sourceLink.page}
        placeholder="https://liff.line.me/1234567890-AbcdEfgh"
      />
      <TextField {...field('source')} label={t.audience.fields.source} placeholder="qr-shop" />
      <TextField {...field('campaign')} label={t.sourceLink.campaign} placeholder="autumn" />
      {made && <Made {...made} source={source} />}
      <CloseFooter onClose={onClose} />
    </Dialog>
  )
}

function Made({ link, svg, source }: { link: string; svg: string; source: string }) {
  const { t } = useLocalized()
  const image = `data:image/svg+xml,${encodeURIComponent(svg)}`
  return (
    <>
      <Copyable text={link} label={t.sourceLink.title} />
      <img src={image} alt={t.sourceLink.code} width={180} height={180} />
      <a class="button" href={image} download={`qr-${source}.svg`}>
        {t.sourceLink.download}
      </a>
    </>
  )
}
