import i18next from "i18next";
import { initReactI18next } from "react-i18next";

i18next.use(initReactI18next).init({
  lng: "en",
  resources: {
    en: { translation: { list: "Notes", new: "New note", save: "Save" } },
    de: { translation: { list: "Notizen", new: "Neue Notiz", save: "Speichern" } },
  },
});
