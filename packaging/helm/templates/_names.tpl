{{- define "anabranch.labels" -}}
app.kubernetes.io/name: anabranch
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}
